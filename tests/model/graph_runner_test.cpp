#include "model/graph_runner.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "testing/far_device.h"

namespace cellar {
namespace {

using testing::far_device;

// ggml's scheduler takes 16 backends, of which the CPU is one, and ends the process at more.
TEST(GraphRunnerTest, MoreDevicesThanCanBeScheduledAreRefused) {
    if (!far_device()) GTEST_SKIP() << "this ggml lets no test make a device";
    const std::vector<ggml_backend_device*> many(16, far_device());
    EXPECT_TRUE(GraphRunner::create(1, std::span(many).first(15)));
    const auto refused = GraphRunner::create(1, many);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kUnsupported);
    EXPECT_NE(refused.error().message.find("16 devices"), std::string::npos)
        << refused.error().message;
}

}  // namespace
}  // namespace cellar
