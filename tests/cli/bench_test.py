"""The benchmark's numbers: those that can be counted are exact."""

from harness import TINY, CellarTest, main


def attended(begin, n):
    """Cells that n tokens attend to, the first at position `begin`."""
    return sum(begin + i + 1 for i in range(n))


class BenchTest(CellarTest):
    def bench(self, *arguments):
        return self.json("bench", "-m", TINY, "--json", "-t", 1, *arguments)

    def test_json_has_the_documented_keys(self):
        answer = self.bench("--prompt", 40, "--gen", 8, "--seqs", 3, "--depth", 20)
        for key, value in [("prompt", 40), ("gen", 8), ("seqs", 3), ("shared", False),
                           ("depth", 20)]:
            self.assertEqual(answer[key], value)
        self.assertAlmostEqual(answer["prompt_tps"], 120 / answer["prompt_s"], delta=1)
        self.assertAlmostEqual(answer["gen_tps"], 24 / answer["gen_s"], delta=1)
        self.assertGreater(answer["graphs_built"], 0)

    def test_attended_cells_are_those_of_the_measured_tokens(self):
        answer = self.bench("--prompt", 40, "--gen", 8, "--seqs", 3, "--depth", 20)
        self.assertEqual(answer["attended_cells"], 3 * (attended(20, 40) + attended(60, 8)))

    def test_shared_prompt_is_computed_once(self):
        answer = self.bench("--prompt", 40, "--gen", 8, "--seqs", 3, "--depth", 20, "--shared")
        self.assertIs(answer["shared"], True)
        self.assertAlmostEqual(answer["prompt_tps"], 40 / answer["prompt_s"], delta=1)
        self.assertEqual(answer["attended_cells"], attended(20, 40) + 3 * attended(60, 8))

    def test_memory_is_no_larger_than_the_work(self):
        private = self.bench("--prompt", 64, "--gen", 8, "--seqs", 10)
        self.assertEqual(private["cells"], 10 * 96)
        shared = self.bench("--prompt", 64, "--gen", 8, "--seqs", 10, "--shared")
        self.assertEqual(shared["cells"], 64 + 10 * 64)

    def test_either_part_alone_is_measured(self):
        self.assertEqual(self.bench("--prompt", 16, "--gen", 0)["gen_tps"], 0)
        self.assertEqual(self.bench("--prompt", 0, "--gen", 4)["prompt_tps"], 0)
        self.assertEqual(self.bench("--prompt", 0, "--gen", 4)["attended_cells"], attended(0, 4))

    def test_odd_sizes_work(self):
        for arguments in [["--page", 1], ["--page", 256], ["--ubatch", 1], ["--ubatch", 7],
                          ["--type-k", "f32", "--type-v", "f16"]]:
            for shared in [[], ["--shared"]]:
                self.bench("--prompt", 33, "--gen", 3, "--seqs", 5, *arguments, *shared)

    def test_rope_can_be_overridden(self):
        self.bench("--prompt", 8, "--gen", 2, "--rope-scaling", "yarn", "--rope-freq-scale", 0.5)
        self.fail_with(2, "--rope-freq-base takes", "bench", "-m", TINY, "--rope-freq-base", 0)

    def test_decode_after_a_shift_is_timed_beside_decode_before(self):
        answer = self.bench("--shift", "--prompt", 100, "--depth", 20, "--gen", 9)
        self.assertEqual((answer["cells"], answer["gen"]), (120, 9))
        self.assertGreater(answer["before_ms"], 0)
        self.assertAlmostEqual(answer["slower"], answer["after_ms"] / answer["before_ms"] - 1)
        text = self.succeed("bench", "-m", TINY, "--shift", "--prompt", 1, "--gen", 1).decode()
        self.assertIn("after a shift", text)
        for more in [["--seqs", 2], ["--shared"], ["--gen", 0]]:
            self.fail_with(2, "--shift measures", "bench", "-m", TINY, "--shift", *more)

    def test_states_are_timed_beside_copying_and_computing(self):
        answer = self.bench("--state", self.folder, "--prompt", 50, "--depth", 10)
        self.assertEqual(answer["cells"], 60)
        self.assertGreater(answer["bytes"], 60 * 4 * 2 * 2)  # four layers, keys and values
        self.assertAlmostEqual(answer["save_to_copy"], answer["copy_s"] / answer["save_s"])
        self.assertAlmostEqual(answer["load_to_copy"], answer["copy_s"] / answer["load_s"])
        self.assertAlmostEqual(answer["sooner"], answer["compute_s"] / answer["answer_s"])
        text = self.succeed("bench", "-m", TINY, "--state", self.folder, "--prompt", 9).decode()
        self.assertIn("times sooner", text)
        self.assertEqual([path.name for path in self.folder.glob("*.state*")], [])
        for more in [["--seqs", 2], ["--prompt", 0], ["--shift"]]:
            self.fail_with(2, "--state", "bench", "-m", TINY, "--state", self.folder, *more)
        self.fail_with(1, "No such file", "bench", "-m", TINY, "--state", self.folder / "none")

    def test_more_work_than_a_memory_can_hold_is_an_error(self):
        self.fail_with(1, "cells", "bench", "-m", TINY, "--prompt", 1000000, "--seqs", 1000000)

    def test_people_get_a_table(self):
        text = self.succeed("bench", "-m", TINY, "--prompt", 16, "--gen", 4, "-t", 1).decode()
        self.assertIn("prefill: 16 tokens", text)
        self.assertIn("decode:  4 tokens", text)


if __name__ == "__main__":
    main()
