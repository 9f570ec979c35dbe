"""Scripts of operations and their answers."""

import json
import subprocess

from harness import DATA, TINY, CellarTest, main, run, start


def script(*operations):
    return "".join(json.dumps(operation) + "\n" for operation in operations)


NEW = {"op": "new", "cells": 256, "type_k": "f32", "type_v": "f32"}


class ReplayTest(CellarTest):
    def replay(self, *operations):
        return self.json_lines("replay", "-m", TINY, "-", stdin=script(*operations))

    def assert_close(self, actual, expected, tolerance, where=""):
        """All of `expected` is in `actual`; numbers with a point may differ by the tolerance."""
        if isinstance(expected, dict):
            for key, value in expected.items():
                self.assertIn(key, actual, where)
                self.assert_close(actual[key], value, tolerance, f"{where}.{key}")
        elif isinstance(expected, list):
            self.assertEqual(len(actual), len(expected), where)
            for i, value in enumerate(expected):
                self.assert_close(actual[i], value, tolerance, f"{where}[{i}]")
        elif isinstance(expected, float):
            self.assertAlmostEqual(actual, expected, delta=tolerance, msg=where)
        else:
            self.assertEqual(actual, expected, where)

    def test_scripts_give_their_expected_answers(self):
        scripts = [path for path in sorted((DATA / "replay").glob("*.jsonl"))
                   if not path.name.endswith(".answers.jsonl")]
        self.assertGreater(len(scripts), 0)
        for path in scripts:
            with self.subTest(path.name):
                expected = path.with_suffix(".answers.jsonl").read_text().splitlines()
                answers = self.json_lines("replay", "-m", TINY, path)
                self.assertEqual(len(answers), len(expected))
                for i, (answer, line) in enumerate(zip(answers, expected)):
                    self.assert_close(answer, json.loads(line), 5e-3, f"line {i + 1}")

    def test_prefill_gives_llama_cpps_logits(self):
        expected = json.loads((DATA / "expected/tiny-llama.json").read_text())
        for ubatch in [512, 7, 1]:
            answers = self.replay({**NEW, "ubatch": ubatch},
                                  {"op": "decode", "logits": "all",
                                   "items": [{"seq": 3, "tokens": expected["tokens"]}]})
            for position, row in expected["prefill"].items():
                self.assert_close(answers[1]["logits"][int(position)], row, 5e-3,
                                  f"ubatch {ubatch}, position {position}")

    def test_forks_give_llama_cpps_logits(self):
        expected = json.loads((DATA / "expected/tiny-llama.json").read_text())
        steps = [{"op": "decode", "logits": "last",
                  "items": [{"seq": 0, "tokens": [a]}, {"seq": 1, "tokens": [b]}]}
                 for a, b in zip(expected["continuation_a"], expected["continuation_b"])]
        answers = self.replay(NEW,
                              {"op": "decode",
                               "items": [{"seq": 0, "tokens": expected["tokens"][:40]}]},
                              {"op": "seq_cp", "from": 0, "to": 1}, *steps)
        for answer, step in zip(answers[3:], expected["fork_at_40"]):
            self.assert_close(answer["logits"], [step["a"], step["b"]], 5e-3)

    def test_rows_come_in_the_order_of_items_and_tokens(self):
        items = [{"seq": 5, "tokens": [1, 2, 3]}, {"seq": 2, "tokens": [4, 5]},
                 {"seq": 5, "tokens": [6]}]
        together = self.replay(NEW, {"op": "decode", "items": items, "logits": "all"})[1]["logits"]
        alone = self.replay(NEW,
                            {"op": "decode", "items": [{"seq": 5, "tokens": [1, 2, 3, 6]}],
                             "logits": "all"},
                            {"op": "decode", "items": [{"seq": 2, "tokens": [4, 5]}],
                             "logits": "all"})
        one, two = alone[1]["logits"], alone[2]["logits"]
        self.assert_close(together, one[:3] + two + one[3:], 1e-4)
        last = self.replay(NEW, {"op": "decode", "items": items, "logits": "last"})[1]["logits"]
        self.assert_close(last, [one[2], two[1], one[3]], 1e-4)

    def test_top_gives_the_largest_logits_first(self):
        decode = {"op": "decode", "items": [{"seq": 0, "tokens": [1, 2, 3]}], "logits": "last"}
        row = self.replay(NEW, decode)[1]["logits"][0]
        self.assertEqual(len(row), 128)
        for top in [1, 5, 128, 1000000]:
            best = self.replay(NEW, {**decode, "top": top})[1]["logits"][0]
            order = sorted(range(128), key=lambda i: (-row[i], i))[:top]
            self.assertEqual(best, [[i, row[i]] for i in order])

    def test_positions_may_be_given_and_may_leave_gaps(self):
        answers = self.replay(
            NEW,
            {"op": "decode", "items": [{"seq": 0, "tokens": [1, 2], "pos": 10}]},
            {"op": "decode", "items": [{"seq": 0, "tokens": [3]}]},
            {"op": "decode", "items": [{"seq": 0, "tokens": [4], "pos": 5}]},
            {"op": "decode", "items": [{"seq": 0, "tokens": [4], "pos": 2147483647}]},
            {"op": "view"})
        self.assertEqual([answer["ok"] for answer in answers], [True, True, True, False, False, True])
        self.assertEqual(answers[-1]["sequences"],
                         [{"seq": 0, "pos_min": 10, "pos_max": 12, "cells": 3}])

    def test_refused_decode_changes_nothing(self):
        answers = self.replay({**NEW, "cells": 32},
                              {"op": "decode", "items": [{"seq": 0, "tokens": [1] * 20}]},
                              {"op": "decode", "items": [{"seq": 1, "tokens": [1] * 20}]},
                              {"op": "view"},
                              {"op": "decode", "items": [{"seq": 0, "tokens": [1] * 12}]})
        self.assertFalse(answers[2]["ok"])
        self.assertIn("room", answers[2]["error"])
        self.assertEqual(len(answers[3]["sequences"]), 1)
        self.assertTrue(answers[4]["ok"])

    def test_windows_of_a_long_text_stay_in_the_pool_of_one_sequence(self):
        window, ubatch, page, n_rollback, total, batch = 32, 64, 8, 5, 16000, 997
        new = {**NEW, "cells": total, "ubatch": ubatch, "page": page, "n_rollback": n_rollback}
        tokens = [(i * i + 7 * i) % 128 for i in range(total)]
        steps = []
        for at in range(0, total, batch):
            steps += [{"op": "decode", "items": [{"seq": 0, "tokens": tokens[at:at + batch]}],
                       "logits": "last" if at + batch >= total else "none"},
                      {"op": "view", "groups": True}]
        gemma = DATA / "models/tiny-gemma3.gguf"
        bounded, full = [self.json_lines("replay", "-m", gemma, "-",
                                         stdin=script({**new, **kind}, *steps))
                         for kind in [{"sequences": 1}, {"swa_full": True}]]
        for decoded, view in zip(bounded[1::2], bounded[2::2]):
            self.assertTrue(decoded["ok"], decoded)
            held, sliding = sorted(view["groups"], key=lambda group: -group["max_cells"])
            # What a step takes besides is room in the pool, which no decode found full.
            self.assertLessEqual(sliding["max_cells"], window + n_rollback + ubatch + 2 * page)
            self.assertLessEqual(sliding["used_cells"], window + n_rollback + 2 * page)
            self.assertGreaterEqual(sliding["used_cells"], window - 1 + n_rollback)
            self.assertEqual(held["used_cells"], held["sequences"][0]["pos_max"] + 1)
        self.assertEqual(held["used_cells"], total)
        self.assert_close(bounded[-2]["logits"], full[-2]["logits"], 1e-3)
        self.assertLess(bounded[0]["bytes"], 0.51 * full[0]["bytes"])  # half of its layers slide

    def test_states_are_those_of_the_sequences_asked_for(self):
        decode = {"op": "decode", "items": [{"seq": s, "tokens": [1, 2]} for s in range(3)]}
        for sequences, room in [(3, True), (2, False)]:
            answers = self.json_lines(
                "replay", "-m", DATA / "models/tiny-mamba.gguf", "-",
                stdin=script({**NEW, "sequences": sequences}, decode, decode))
            self.assertEqual(answers[2]["ok"], room)

    def test_new_makes_a_fresh_memory_or_leaves_the_old(self):
        decode = {"op": "decode", "items": [{"seq": 0, "tokens": [1]}]}
        answers = self.replay(NEW, decode, {"op": "new", "cells": 8, "page": 3}, {"op": "view"},
                              {"op": "new", "cells": 70}, {"op": "view"})
        self.assertFalse(answers[2]["ok"])
        self.assertEqual(answers[3]["used_cells"], 1)
        self.assertEqual(answers[4]["cells"], 96)  # whole pages of 32
        self.assertEqual(answers[5]["used_cells"], 0)

    def test_an_abort_keeps_the_ubatches_before_it(self):
        decode = {"op": "decode", "items": [{"seq": 0, "tokens": list(range(10))}]}
        more = {"op": "decode", "items": [{"seq": 0, "tokens": list(range(8, 10))}],
                "logits": "last", "top": 3}
        answers = self.replay({**NEW, "ubatch": 4}, {**decode, "abort_after_ubatch": 0},
                              {"op": "view"}, {**decode, "abort_after_ubatch": 2}, {"op": "view"},
                              more, {"op": "clear"}, {**decode, "logits": "last", "top": 3})
        self.assertEqual([answers[i]["ubatches"] for i in (1, 3, 5, 7)], [0, 2, 1, 3])
        self.assertEqual([answers[i]["used_cells"] for i in (2, 4)], [0, 8])
        for aborted, whole in zip(answers[5]["logits"][0], answers[7]["logits"][0]):
            self.assertEqual(aborted[0], whole[0])
            self.assertAlmostEqual(aborted[1], whole[1], places=4)

    def test_seq_keep_forgets_the_others(self):
        answers = self.replay(NEW, {"op": "decode", "items": [{"seq": 0, "tokens": [1, 2]},
                                                              {"seq": 3, "tokens": [4]}]},
                              {"op": "seq_keep", "seq": 3}, {"op": "view"})
        self.assertEqual(answers[3]["used_cells"], 1)
        self.assertEqual([each["seq"] for each in answers[3]["sequences"]], [3])

    def test_says_whether_positions_can_be_moved(self):
        self.assertEqual(self.replay(NEW, {"op": "can_shift"})[1],
                         {"ok": True, "can_shift": True})

    def test_shifts_and_divisions_move_positions(self):
        logits = {"op": "decode", "items": [{"seq": 0, "tokens": [9]}], "logits": "last"}
        tokens = {"op": "decode", "items": [{"seq": 0, "tokens": list(range(1, 13))}]}
        answers = self.replay(NEW, tokens, {"op": "seq_add", "seq": 0, "p0": 4, "delta": -4},
                              {"op": "view"}, {"op": "clear"}, tokens,
                              {"op": "seq_div", "seq": 0, "p0": 0, "p1": -1, "d": 3},
                              {"op": "view"}, logits, {"op": "clear"}, tokens, logits,
                              {"op": "seq_add", "seq": 0, "delta": 2**31 - 10})
        spans = [answers[i]["sequences"][0] for i in (3, 7)]
        self.assertEqual([(each["pos_min"], each["pos_max"]) for each in spans], [(0, 7), (0, 3)])
        self.assertGreater(max(abs(a - b) for a, b in zip(answers[8]["logits"][0],
                                                          answers[11]["logits"][0])), 0.001)
        self.assertFalse(answers[12]["ok"])
        self.assertIn("passes the greatest", answers[12]["error"])

    def test_defrag_gathers_pages_of_which_little_is_seen(self):
        answers = self.replay({**NEW, "page": 4},
                              {"op": "decode", "items": [{"seq": 0, "tokens": list(range(16))}]},
                              *({"op": "seq_rm", "seq": 0, "p0": 4 * i, "p1": 4 * i + 3}
                                for i in range(4)),
                              {"op": "view"}, {"op": "defrag", "cells": 0}, {"op": "defrag"},
                              {"op": "view"})
        self.assertEqual([answers[i]["used_pages"] for i in (6, 9)], [4, 1])
        self.assertEqual([answers[i]["moved"] for i in (7, 8)], [0, 4])

    def test_view_shows_groups_and_a_map(self):
        answers = self.replay(
            {**NEW, "cells": 16, "page": 4},
            {"op": "decode", "items": [{"seq": 0, "tokens": [1, 2, 3, 4, 5]}]},
            {"op": "seq_cp", "from": 0, "to": 1, "p1": 4}, {"op": "view", "groups": True},
            {"op": "view", "map": True}, {"op": "view"})
        (group,) = answers[3]["groups"]
        pages = {page["page"]: page for page in group["pages"]}
        spans = {each["seq"]: each["spans"] for each in group["sequences"]}
        self.assertEqual([span["count"] for span in spans[0]], [4, 1])
        self.assertEqual([span["count"] for span in spans[1]], [4])
        self.assertEqual(pages[spans[1][0]["page"]]["holders"], 2)
        self.assertEqual((group["held_cells"], group["greatest_pos"]), (9, 4))
        self.assertIn("21", answers[4]["map"])  # two pages: held by two, and by one
        self.assertNotIn("map", answers[5])
        self.assertNotIn("groups", answers[5])

    def test_script_without_new_gets_a_memory_of_the_options(self):
        self.assertEqual(self.replay({"op": "view"})[0]["free_cells"], 4096)
        answers = self.json_lines("replay", "-m", TINY, "--page", 64, "-",
                                  stdin=script({"op": "view"}))
        self.assertEqual(answers[0]["page"], 64)

    def test_bad_lines_are_answered_and_the_script_goes_on(self):
        good = {"op": "view"}
        cases = [
            ("{", "JSON"), ("nonsense", "JSON"), ("[1]", "object"), ("3", "object"),
            ("null", "object"), ('{"a":1} {"b":2}', "JSON"), ("\x00", "JSON"), ("[" * 100000, "JSON"),
            ({}, '"op"'), ({"op": 3}, '"op"'), ({"op": "fly"}, "fly"),
            ({"op": "view", "colour": 1}, '"colour"'),
            ({"op": "decode"}, '"items"'), ({"op": "decode", "items": 3}, '"items"'),
            ({"op": "decode", "items": []}, "no items"),
            ({"op": "decode", "items": [3]}, '"items"'),
            ({"op": "decode", "items": [{"seq": 0}]}, '"tokens"'),
            ({"op": "decode", "items": [{"tokens": [1]}]}, '"seq"'),
            ({"op": "decode", "items": [{"seq": -1, "tokens": [1]}]}, '"seq"'),
            ({"op": "decode", "items": [{"seq": 2**31, "tokens": [1]}]}, '"seq"'),
            ({"op": "decode", "items": [{"seq": 0.5, "tokens": [1]}]}, '"seq"'),
            ({"op": "decode", "items": [{"seq": "0", "tokens": [1]}]}, '"seq"'),
            ({"op": "decode", "items": [{"seq": 0, "tokens": 1}]}, '"tokens"'),
            ({"op": "decode", "items": [{"seq": 0, "tokens": []}]}, "no items"),
            ({"op": "decode", "items": [{"seq": 0, "tokens": [128]}]}, '"tokens"'),
            ({"op": "decode", "items": [{"seq": 0, "tokens": [-1]}]}, '"tokens"'),
            ({"op": "decode", "items": [{"seq": 0, "tokens": [2**64]}]}, '"tokens"'),
            ({"op": "decode", "items": [{"seq": 0, "tokens": [1.0]}]}, '"tokens"'),
            ({"op": "decode", "items": [{"seq": 0, "tokens": [None]}]}, '"tokens"'),
            ({"op": "decode", "items": [{"seq": 0, "tokens": [1], "pos": -2}]}, '"pos"'),
            ({"op": "decode", "items": [{"seq": 0, "tokens": [1], "pos": 2**63}]}, '"pos"'),
            ({"op": "decode", "items": [{"seq": 0, "tokens": [1], "posi": 2}]}, '"posi"'),
            ({"op": "decode", "items": [{"seq": 0, "tokens": [1]}], "logits": "some"}, '"logits"'),
            ({"op": "decode", "items": [{"seq": 0, "tokens": [1]}], "logits": 1}, '"logits"'),
            ({"op": "decode", "items": [{"seq": 0, "tokens": [1]}], "top": 0}, '"top"'),
            ({"op": "seq_rm"}, '"seq"'), ({"op": "seq_rm", "seq": -2}, '"seq"'),
            ({"op": "seq_rm", "seq": 0, "p0": "x"}, '"p0"'),
            ({"op": "seq_rm", "seq": 0, "p1": 2**40}, '"p1"'),
            ({"op": "seq_rm", "seq": 0, "p0": 5, "p1": 3}, "range"),
            ({"op": "seq_cp", "from": 0}, '"to"'), ({"op": "seq_cp", "to": 0}, '"from"'),
            ({"op": "seq_cp", "from": -1, "to": 0}, '"from"'),
            ({"op": "seq_add", "seq": 0}, '"delta"'),
            ({"op": "seq_div", "seq": 0, "d": 0}, '"d"'),
            ({"op": "clear", "data": 1}, '"data"'),
            ({"op": "new", "cells": 0}, '"cells"'), ({"op": "new", "cells": 1e9}, '"cells"'),
            ({"op": "new", "cells": 2**31}, '"cells"'), ({"op": "new", "page": 512}, '"page"'),
            ({"op": "new", "cells": 2**31 - 2, "page": 1}, "at most 67108864 pages"),
            ({"op": "new", "page": 24}, "power of two"), ({"op": "new", "ubatch": 0}, '"ubatch"'),
            ({"op": "new", "type_k": "f12"}, '"type_k"'), ({"op": "new", "type_v": 16}, '"type_v"'),
            ({"op": "new", "threads": 0}, '"threads"'),
            ({"op": "new", "attention": "both"}, "auto, kernel, graph"),
            ({"op": "new", "attention": True}, '"attention"'),
            ({"op": "new", "budget_bytes": 0}, '"budget_bytes"'),
            ({"op": "new", "budget_bytes": 2**63}, '"budget_bytes"'),
            ({"op": "new", "budget_bytes": 2**63 - 1}, "than can be numbered"),
            ({"op": "new", "budget_bytes": 1000, "cells": 10}, "give one of them"),
            ({"op": "new", "grow_step": 0}, '"grow_step"'),
            ({"op": "new", "defrag_threshold": 1.01}, '"defrag_threshold"'),
            ({"op": "new", "defrag_threshold": "0.5"}, '"defrag_threshold"'),
            ({"op": "new", "defrag_cells": 0}, '"defrag_cells"'),
        ]
        lines = []
        for case, _ in cases:
            lines += [case if isinstance(case, str) else json.dumps(case), json.dumps(good)]
        answers = self.json_lines("replay", "-m", TINY, "-", stdin="\n".join(lines))
        self.assertEqual(len(answers), len(lines))
        for (case, part), answer, after in zip(cases, answers[::2], answers[1::2]):
            with self.subTest(str(case)[:100]):
                self.assertIs(answer["ok"], False)
                self.assertIn(part, answer["error"])
                self.assertEqual(set(answer), {"ok", "error"})
                self.assertEqual(after["used_cells"], 0)

    def test_attention_by_either_path_gives_the_same_logits(self):
        decode = {"op": "decode", "items": [{"seq": 0, "tokens": [5, 6, 7, 8]}], "logits": "last"}
        rows = [self.replay({**NEW, "attention": path}, decode)[1]["logits"][0]
                for path in ("kernel", "graph", "auto")]
        # They round apart, so that bits tell which of them it was.
        self.assertNotEqual(rows[0], rows[1])
        self.assertEqual(rows[0], rows[2])
        for kernel, graph in zip(rows[0], rows[1]):
            self.assertAlmostEqual(kernel, graph, delta=1e-4)

    def test_a_budget_of_bytes_is_rounded_up_and_grows_in_steps(self):
        # In f32 a cell is 4 layers of 2 heads of 16 keys and 16 values: 1,024 bytes.
        new = {"op": "new", "type_k": "f32", "type_v": "f32", "page": 16}
        decode = {"op": "decode", "items": [{"seq": 0, "tokens": [1] * 33}]}
        answers = self.replay({**new, "budget_bytes": 100 * 1024 + 1, "grow_step": 32},
                              {"op": "view"}, decode, {"op": "view"}, decode, decode,
                              {"op": "view"}, decode)
        self.assertEqual(answers[0]["cells"], 112)
        self.assertGreaterEqual(answers[0]["bytes"], 112 * 1024)
        views = [answers[i] for i in (1, 3, 6)]
        self.assertEqual([view["cells"] for view in views], [32, 64, 112])
        self.assertEqual([view["max_cells"] for view in views], [112, 112, 112])
        self.assertEqual([view["free_cells"] for view in views], [112, 79, 13])
        self.assertFalse(answers[7]["ok"])
        self.assertIn("32 more cells are needed, 0 are free", answers[7]["error"])

    def test_above_a_threshold_decodes_compact_first(self):
        def used_pages(**settings):
            fill = [{"op": "decode", "items": [{"seq": s, "tokens": [1] * 32}]} for s in range(4)]
            holes = [{"op": "seq_rm", "seq": s, "p0": 4, "p1": 16} for s in range(4)]
            decode = {"op": "decode", "items": [{"seq": 9, "tokens": [1]}]}
            return self.replay({**NEW, "page": 16, **settings}, *fill, *holes, decode,
                               {"op": "view"})[-1]["used_pages"]

        # Of eight pages 48 of 128 cells, 0.375, are unused; the ninth is the new token's.
        self.assertEqual(used_pages(), 9)
        self.assertEqual(used_pages(defrag_threshold=0.375), 9)
        self.assertEqual(used_pages(defrag_threshold=0.37), 6)
        self.assertEqual(used_pages(defrag_threshold=0.37, defrag_cells=8), 8)

    def test_the_environment_asks_for_a_log_on_standard_error(self):
        operations = script(
            {**NEW, "page": 16}, {"op": "decode", "items": [{"seq": 0, "tokens": [1] * 20}]},
            {"op": "seq_cp", "from": 0, "to": 1},
            {"op": "decode", "items": [{"seq": 0, "tokens": [2]}]},
            {"op": "decode", "items": [{"seq": 1, "tokens": [3]}]},
            {"op": "seq_add", "seq": 0, "p0": 4, "delta": 3},
            {"op": "seq_div", "seq": 1, "p0": 20, "d": 2},
            {"op": "seq_rm", "seq": -1, "p0": 2, "p1": 16},
            {"op": "decode", "items": [{"seq": 2, "tokens": [1] * 17}]},
            {"op": "seq_cp", "from": 2, "to": 0, "p0": 40, "p1": 30},
            {"op": "defrag"})

        def log(level):
            done = run("replay", "-m", TINY, "-", stdin=operations,
                       environment={"CELLAR_DEBUG": level})
            self.assertEqual(done.returncode, 0)
            return done.stdout, done.stderr.decode().splitlines()

        quiet, nothing = log("0")
        self.assertEqual(nothing, [])
        answers, lines = log("1")
        self.assertEqual(answers, quiet)
        self.assertEqual(
            [line.removeprefix("memory: ") for line in lines[::2]],
            ["committed ubatch 1 of 1 with 20 items",
             "shared sequence 0 from 0 on with sequence 1",
             "committed ubatch 1 of 1 with 1 items",
             "copied 4 cells of page 1 to page 2 in group 0",
             "committed ubatch 1 of 1 with 1 items",
             "shifted sequence 0 from 4 on by +3",
             "divided sequence 1 from 20 on by 2",
             "removed every sequence from 2 to before 16",
             "copied 1 cells of page 2 to page 3 in group 0, their keys to be turned",
             "committed ubatch 1 of 1 with 17 items"])
        self.assertEqual(len(lines), 20)
        self.assertTrue(all(line.startswith("group 0: ") for line in lines[1::2]))
        self.assertIn("20 cells used, 20 held by 1 sequences, positions up to 19", lines[1])
        self.assertIn("20 cells used, 40 held by 2 sequences", lines[3])

        with_map, with_positions = log("2")[1], log("3")[1]
        self.assertEqual(with_map[:3], [*lines[:2], "         0 11.............."])
        self.assertIn("  sequence 0: 0[0,16)+0 1[0,4)+0", with_positions[:7])
        self.assertNotIn("  sequence 0: 0[0,16)+0 1[0,4)+0", with_map)
        self.assertIn("'4'", log("4")[1][0])

    def test_the_log_tells_of_compaction(self):
        fill = [{"op": "decode", "items": [{"seq": s, "tokens": [1] * 32}]} for s in range(2)]
        holes = [{"op": "seq_rm", "seq": s, "p0": 4, "p1": 16} for s in range(2)]
        done = run("replay", "-m", TINY, "-", environment={"CELLAR_DEBUG": "1"},
                   stdin=script({**NEW, "page": 16}, *fill, *holes, {"op": "defrag"}))
        lines = done.stderr.decode().splitlines()[8:]
        self.assertEqual(lines[::2],
                         ["memory: copied 4 cells of page 0 to page 4 in group 0",
                          "memory: copied 4 cells of page 2 to page 4 in group 0",
                          "memory: compacted 8 cells"])
        self.assertIn("3 of 16 pages live", lines[5])

    def test_blank_lines_are_passed_over(self):
        self.assertEqual(self.json_lines("replay", "-m", TINY, "-", stdin="\n  \n\r\n"), [])
        self.assertEqual(self.json_lines("replay", "-m", TINY, "/dev/null"), [])

    def test_greatest_sequence_ids_are_as_good_as_any(self):
        greatest = 2**31 - 1
        answers = self.replay(NEW, {"op": "decode", "items": [{"seq": greatest, "tokens": [1]}]},
                              {"op": "seq_cp", "from": greatest, "to": 0},
                              {"op": "seq_rm", "seq": greatest}, {"op": "view"})
        self.assertTrue(all(answer["ok"] for answer in answers))
        self.assertEqual([sequence["seq"] for sequence in answers[-1]["sequences"]], [0])

    def test_answers_come_line_by_line(self):
        process = start("replay", "-m", TINY, "-", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(3):
            process.stdin.write(script({"op": "view"}).encode())
            process.stdin.flush()
            self.assertTrue(json.loads(process.stdout.readline())["ok"])
        process.stdin.close()
        self.assertEqual(process.stdout.read(), b"")
        self.assertEqual(process.wait(timeout=60), 0)
        process.stdout.close()


if __name__ == "__main__":
    main()
