// R17: whatever happens during a save, a reader finds the old state or the new one, whole.

#include "state/files.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "state/state_rig.h"
#include "testing/scratch_file.h"

namespace cellar::testing {
namespace {

// A disk in memory that can fail or stop at any of its calls, and then forgets what was not synced.
class FakeDisk : public Disk {
public:
    // Call number `n`, from 0, fails; from then on all do if the disk is to stop there.
    void fail_at(size_t n, bool stops) {
        fails_ = n;
        stops_ = stops;
        calls_ = 0;
    }
    size_t calls() const { return calls_; }

    // What is on disk after the power was cut. Names that were not synced may have made it.
    void crash(bool names_made_it) {
        if (!names_made_it) names_ = durable_names_;
        for (auto& [name, content] : names_)
            content->bytes = content->durable;
        durable_names_ = names_;
    }

    const std::string* find(const std::string& path) const {
        const auto at = names_.find(path);
        return at == names_.end() ? nullptr : &at->second->bytes;
    }
    size_t n_files() const { return names_.size(); }

    Result<std::unique_ptr<File>> create(const std::string& path) override {
        if (auto ok = call(); !ok) return pass(std::move(ok));
        names_[path] = std::make_shared<Content>();
        return std::make_unique<FakeFile>(*this, names_[path]);
    }
    Result<void> rename(const std::string& from, const std::string& to) override {
        if (auto ok = call(); !ok) return ok;
        names_[to] = names_.at(from);
        names_.erase(from);
        return {};
    }
    Result<void> sync_folder_of(const std::string&) override {
        if (auto ok = call(); !ok) return ok;
        durable_names_ = names_;
        return {};
    }
    void remove(const std::string& path) override {
        if (!stopped()) names_.erase(path);
    }

private:
    struct Content {
        std::string bytes;
        std::string durable;
    };

    class FakeFile : public File {
    public:
        FakeFile(FakeDisk& disk, std::shared_ptr<Content> content)
            : disk_(disk), content_(std::move(content)) {}
        // A write that fails has written half.
        Result<void> write(std::span<const std::byte> bytes) override {
            const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
            auto ok = disk_.call();
            content_->bytes += ok ? text : text.substr(0, text.size() / 2);
            return ok;
        }
        Result<void> sync() override {
            if (auto ok = disk_.call(); !ok) return ok;
            content_->durable = content_->bytes;
            return {};
        }

    private:
        FakeDisk& disk_;
        std::shared_ptr<Content> content_;
    };

    bool stopped() const { return stops_ && calls_ > fails_; }
    Result<void> call() {
        const size_t n = calls_++;
        if (n < fails_ || (n > fails_ && !stops_)) return {};
        return fail(Code::kIo, "no space left");
    }

    std::map<std::string, std::shared_ptr<Content>> names_;
    std::map<std::string, std::shared_ptr<Content>> durable_names_;
    size_t calls_ = 0;
    size_t fails_ = SIZE_MAX;
    bool stops_ = false;
};

std::string save_to_text(StateRig& rig) {
    const std::vector<std::byte> bytes = save(rig, {0});
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Result<void> save_on(Disk& disk, StateRig& rig, const std::string& path) {
    auto sink = FileSink::create(path, disk);
    if (!sink) return pass(std::move(sink));
    const std::vector<Token> tokens = {5, 6, 7};
    const SequenceToSave one{SeqId{0}, tokens};
    return Saving::begin(*rig, test_identity(), std::span(&one, 1), {})->write(**sink);
}

class R17 : public ::testing::Test {
protected:
    void SetUp() override {
        old_.append(0, 20);
        new_.append(0, 33);
        old_text_ = save_to_text(old_);
        new_text_ = save_to_text(new_);
    }

    StateRig old_, new_;
    std::string old_text_, new_text_;
};

TEST_F(R17, AFailureAnywhereLeavesTheOldState) {
    for (size_t n = 0;; n++) {
        FakeDisk disk;
        ASSERT_TRUE(save_on(disk, old_, "s"));
        disk.fail_at(n, false);
        const auto saved = save_on(disk, new_, "s");
        if (disk.calls() <= n) {
            EXPECT_TRUE(saved);
            EXPECT_GT(n, 8);
            break;
        }
        ASSERT_FALSE(saved) << n;
        EXPECT_EQ(saved.error().code, Code::kIo);
        // Once it has its name it stays, though nobody can say that it would survive a crash.
        const bool named = *disk.find("s") == new_text_;
        EXPECT_TRUE(named ? n + 1 == disk.calls() : *disk.find("s") == old_text_) << n;
        EXPECT_EQ(disk.n_files(), 1) << n;  // nothing left beside it
        ASSERT_TRUE(save_on(disk, new_, "s"));
        EXPECT_EQ(*disk.find("s"), new_text_);
    }
}

TEST_F(R17, ACrashAnywhereLeavesOneOfBoth) {
    for (const bool names_made_it : {false, true}) {
        for (size_t n = 0;; n++) {
            FakeDisk disk;
            ASSERT_TRUE(save_on(disk, old_, "s"));
            disk.fail_at(n, true);
            const auto saved = save_on(disk, new_, "s");
            const bool whole = disk.calls() <= n;
            disk.fail_at(SIZE_MAX, false);
            disk.crash(names_made_it);
            ASSERT_NE(disk.find("s"), nullptr) << n;
            const std::string found = *disk.find("s");
            EXPECT_TRUE(found == new_text_ || (!whole && found == old_text_)) << n;
            EXPECT_LE(disk.n_files(), 2);
            // What the crash left goes with the next save.
            ASSERT_TRUE(save_on(disk, new_, "s"));
            EXPECT_EQ(disk.n_files(), 1);
            EXPECT_EQ(*disk.find("s"), new_text_);
            if (whole) break;
        }
    }
}

// The system's disk, with a process that ends at the n-th call.
class DyingDisk : public Disk {
public:
    explicit DyingDisk(size_t dies) : dies_(dies) {}

    Result<std::unique_ptr<File>> create(const std::string& path) override {
        call();
        auto file = system_disk().create(path);
        if (!file) return file;
        return std::make_unique<DyingFile>(*this, *std::move(file));
    }
    Result<void> rename(const std::string& from, const std::string& to) override {
        call();
        return system_disk().rename(from, to);
    }
    Result<void> sync_folder_of(const std::string& path) override {
        call();
        return system_disk().sync_folder_of(path);
    }
    void remove(const std::string& path) override { system_disk().remove(path); }

private:
    class DyingFile : public File {
    public:
        DyingFile(DyingDisk& disk, std::unique_ptr<File> file)
            : disk_(disk), file_(std::move(file)) {}
        Result<void> write(std::span<const std::byte> bytes) override {
            // Half of it may have been written when a process is killed.
            if (disk_.calls_ == disk_.dies_) (void)file_->write(bytes.first(bytes.size() / 2));
            disk_.call();
            return file_->write(bytes);
        }
        Result<void> sync() override {
            disk_.call();
            return file_->sync();
        }

    private:
        DyingDisk& disk_;
        std::unique_ptr<File> file_;
    };

    void call() {
        if (calls_++ == dies_) ::_exit(9);
    }

    size_t calls_ = 0;
    const size_t dies_;
};

TEST_F(R17, AProcessKilledAnywhereLeavesOneOfBoth) {
    const ScratchFile file("");
    const std::string path = file.path().string();
    for (size_t n = 0;; n++) {
        ASSERT_TRUE(save_on(system_disk(), old_, path));
        const pid_t child = ::fork();
        if (child == 0) {
            DyingDisk disk(n);
            ::_exit(save_on(disk, new_, path) ? 0 : 1);
        }
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFEXITED(status));
        const std::string found = read_file(path);
        if (WEXITSTATUS(status) == 0) {
            EXPECT_EQ(found, new_text_);
            EXPECT_GT(n, 8);
            break;
        }
        ASSERT_EQ(WEXITSTATUS(status), 9);
        EXPECT_TRUE(found == old_text_ || found == new_text_) << n;
        auto source = FileSource::open(path);
        ASSERT_TRUE(source);
        StateRig to;
        EXPECT_TRUE(load_state(*to, test_identity(), **source, {}));
    }
    ASSERT_TRUE(save_on(system_disk(), old_, path));
    EXPECT_FALSE(std::filesystem::exists(path + ".part"));
}

TEST_F(R17, TwoSavesAtOnceDoNotMix) {
    const ScratchFile file("");
    const std::string path = file.path().string();
    auto first = FileSink::create(path);
    ASSERT_TRUE(first);
    const auto second = FileSink::create(path);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().code, Code::kBusy);
    first->reset();
    EXPECT_FALSE(std::filesystem::exists(path + ".part"));
    EXPECT_TRUE(save_on(system_disk(), new_, path));
    EXPECT_EQ(read_file(path), new_text_);
}

TEST_F(R17, WhatCannotBeOpenedIsNamed) {
    const auto sink = FileSink::create("/nonexistent/folder/file");
    ASSERT_FALSE(sink);
    EXPECT_EQ(sink.error().code, Code::kIo);
    EXPECT_NE(sink.error().message.find("/nonexistent/folder/file"), std::string::npos);
    EXPECT_EQ(FileSource::open("/nonexistent").error().code, Code::kIo);
    EXPECT_EQ(FileSource::open("/tmp").error().code, Code::kBadFile);
}

}  // namespace
}  // namespace cellar::testing
