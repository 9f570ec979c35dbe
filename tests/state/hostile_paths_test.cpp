// Paths that are no files, or whose neighbours were put there to do harm.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "state/files.h"
#include "testing/scratch_file.h"

namespace cellar::testing {
namespace {

// A folder for each test.
class HostilePathTest : public ::testing::Test {
protected:
    void SetUp() override {
        std::string name = (std::filesystem::temp_directory_path() / "cellar-XXXXXX").string();
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        folder_ = name;
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    std::string at(const char* name) const { return (folder_ / name).string(); }
    void write(const std::string& path, std::string_view text) const {
        std::ofstream(path) << text;
    }
    void expect_refused(const std::string& path) {
        const auto sink = FileSink::create(path);
        ASSERT_FALSE(sink) << path;
        EXPECT_EQ(sink.error().code, Code::kIo);
        EXPECT_NE(sink.error().message.find(path), std::string::npos) << sink.error().message;
    }
    Result<void> save_to(const std::string& path) {
        auto sink = FileSink::create(path);
        if (!sink) return pass(std::move(sink));
        if (auto written = (*sink)->write(std::as_bytes(std::span("new", 3))); !written)
            return written;
        return (*sink)->finish();
    }

    std::filesystem::path folder_;
};

// Whoever saves to /dev/null, as root even, must not put a file in its place.
TEST_F(HostilePathTest, WhatIsNoFileStaysWhatItIs) {
    ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
    std::filesystem::create_directory(at("folder"));
    std::filesystem::create_symlink("/dev/null", at("null"));
    for (const char* name : {"pipe", "folder", "null"}) {
        expect_refused(at(name));
        EXPECT_FALSE(std::filesystem::exists(at(name) + ".part"));
    }
    EXPECT_TRUE(std::filesystem::is_fifo(at("pipe")));
}

TEST_F(HostilePathTest, LinksInThePlaceOfThePartAreNotFollowed) {
    write(at("victim"), "old");
    std::filesystem::create_symlink(at("victim"), at("s.part"));
    expect_refused(at("s"));
    EXPECT_EQ(read_file(at("victim")), "old");
    std::filesystem::remove(at("s.part"));
    std::filesystem::create_hard_link(at("victim"), at("s.part"));
    expect_refused(at("s"));
    EXPECT_EQ(read_file(at("victim")), "old");
}

TEST_F(HostilePathTest, APipeInThePlaceOfThePartDoesNotHang) {
    ASSERT_EQ(::mkfifo(at("s.part").c_str(), 0600), 0);
    expect_refused(at("s"));
    // With a reader, too.
    const int reader = ::open(at("s.part").c_str(), O_RDONLY | O_NONBLOCK);
    expect_refused(at("s"));
    ::close(reader);
    std::filesystem::remove(at("s.part"));
    std::filesystem::create_directory(at("s.part"));
    expect_refused(at("s"));
}

// A part that was left by somebody with another idea of who may read it.
TEST_F(HostilePathTest, StatesAreOfTheirOwnerOnly) {
    write(at("s.part"), "left");
    ::chmod(at("s.part").c_str(), 0666);
    ASSERT_TRUE(save_to(at("s")));
    struct stat status = {};
    ASSERT_EQ(::stat(at("s").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600);
    EXPECT_EQ(read_file(at("s")), "new");
}

TEST_F(HostilePathTest, ALinkIsReplacedAndItsTargetKept) {
    write(at("target"), "old");
    std::filesystem::create_symlink(at("target"), at("s"));
    ASSERT_TRUE(save_to(at("s")));
    EXPECT_FALSE(std::filesystem::is_symlink(at("s")));
    EXPECT_EQ(read_file(at("s")), "new");
    EXPECT_EQ(read_file(at("target")), "old");
}

// A limit of two bytes on files stands for the disk.
TEST_F(HostilePathTest, AFullDiskIsSaidAndLeavesNothing) {
    struct rlimit before = {};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit small = {2, before.rlim_max};
    auto* ignored = std::signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    const auto saved = save_to(at("s"));
    ::setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, ignored);
    ASSERT_FALSE(saved);
    EXPECT_EQ(saved.error().code, Code::kIo);
    EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

}  // namespace
}  // namespace cellar::testing
