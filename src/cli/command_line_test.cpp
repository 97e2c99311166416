#include "cli/command_line.h"

#include <gtest/gtest.h>

#include "cli/run_options.h"

namespace berth::cli {
namespace {

using Words = std::vector<std::string>;

struct ParsedRun {
  RunOptions options;
  Words command;
  std::string wrong;  // what the parser has to say
};

ParsedRun parse_run(Words words) {
  CLI::App app;
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  CLI::App* run = app.add_subcommand("run", "");
  ParsedRun result;
  add_run_options(run, &result.options);
  RunSplit split = split_run_arguments(*run, words);
  result.command = split.command;
  Words reversed(split.options.rbegin(), split.options.rend());
  reversed.push_back("run");
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    result.wrong = usage_message(error, "run");
  }
  return result;
}

Result<client::JobRequest> request_of(Words words) {
  ParsedRun run = parse_run(words);
  if (!run.wrong.empty()) return Error{"usage", run.wrong};
  return job_request(run.options, run.command);
}

}  // namespace

TEST(CommandLine, OptionsEndAtTheCommand) {
  struct Case {
    Words words, command;
  };
  for (const Case& c : {Case{{"python", "-m", "foo", "--wait=3"}, {"python", "-m", "foo", "--wait=3"}},
                        Case{{"-m", "8G", "run", "--strict"}, {"run", "--strict"}},
                        Case{{"--memory=8G", "--wait", "sleep", "5"}, {"sleep", "5"}},
                        Case{{"-m8G", "--", "--weird"}, {"--weird"}},
                        Case{{"--strict", "--", "--", "a"}, {"--", "a"}},
                        Case{{"prog", "--", "x"}, {"prog", "--", "x"}},
                        Case{{"-", "x"}, {"-", "x"}},
                        Case{{"", "x"}, {"", "x"}},
                        Case{{"-m", "-1", "x"}, {"x"}},
                        Case{{"-n", "--", "x"}, {"x"}},
                        Case{{"-m"}, {}}})
    EXPECT_EQ(parse_run(c.words).command, c.command) << ::testing::PrintToString(c.words);
}

TEST(CommandLine, OptionsReachTheRequest) {
  auto request = request_of({"-m", "40%", "-p", "high", "-w", "300", "--max-share=50%", "--device", "1", "--name",
                             "svc", "--wait=7", "--strict", "-g", "4", "serve", "-x"});
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->memory, "40%");
  EXPECT_EQ(request->priority, "high");
  EXPECT_EQ(request->weight, 300);
  EXPECT_DOUBLE_EQ(*request->max_share_ratio, 0.5);
  EXPECT_EQ(request->device, "1");
  EXPECT_EQ(request->name, "svc");
  EXPECT_EQ(request->wait_seconds, 7);
  EXPECT_TRUE(request->strict);
  EXPECT_EQ(request->gpus, 4);
  EXPECT_EQ(request->command, (Words{"serve", "-x"}));
}

TEST(CommandLine, DefaultsAndTheLastOfTwo) {
  auto request = request_of({"prog"});
  ASSERT_TRUE(request.ok());
  EXPECT_FALSE(request->memory.has_value());
  EXPECT_FALSE(request->gpus.has_value());
  EXPECT_EQ(request_of({"--gpus=1", "prog"})->gpus, 1);  // one is a virtual device too
  EXPECT_EQ(request_of({"-g32", "prog"})->gpus, 32);
  EXPECT_EQ(request->priority, "normal");
  EXPECT_EQ(request->weight, 100);
  EXPECT_EQ(request->wait_seconds, 0);
  EXPECT_FALSE(request->name.has_value());
  EXPECT_EQ(request_of({"--wait", "prog"})->wait_seconds, -1);
  EXPECT_EQ(request_of({"-m", "1G", "-m", "2G", "prog"})->memory, "2G");
  EXPECT_FALSE(request_of({"-m", "", "prog"})->memory.has_value());  // B30
}

TEST(CommandLine, WrongOptionsGetOneClearLine) {
  struct Case {
    Words words;
    std::string message;
  };
  for (const Case& c : {
           Case{{}, "the command to run is missing; see berth run --help"},
           Case{{"-m"}, "--memory needs a value; see berth run --help"},
           Case{{"--nonsense", "x"}, "'--nonsense' is not expected here; see berth run --help"},
           Case{{"-m", "8X", "x"},
                "--memory: '8X' is not a size: give bytes, or a number with K, M, G or T such as 512M or 8G, "
                "or a percentage of the device such as 25%"},
           Case{{"-m", "-1", "x"},
                "--memory: '-1' is not a size: give bytes, or a number with K, M, G or T such as 512M or 8G, "
                "or a percentage of the device such as 25%"},
           Case{{"-w", "-3", "x"}, "'-3' is not a weight: give a number from 1 to 10000"},
           Case{{"-p", "urgent", "x"}, "'urgent' is not a priority: give high, normal or low"},
           Case{{"-g", "0", "x"}, "'0' is not a number of virtual devices: give 1 to 32 with -g"},
           Case{{"-g", "-1", "x"}, "'-1' is not a number of virtual devices: give 1 to 32 with -g"},
           Case{{"--gpus=33", "x"}, "'33' is not a number of virtual devices: give 1 to 32 with -g"},
           Case{{"-g", "1000", "x"}, "'1000' is not a number of virtual devices: give 1 to 32 with -g"},
           Case{{"-g", "x", "x"}, "'x' is not a number of virtual devices: give 1 to 32 with -g"},
           Case{{"-g", "2.0", "x"}, "'2.0' is not a number of virtual devices: give 1 to 32 with -g"},
           Case{{"-g", "", "x"}, "'' is not a number of virtual devices: give 1 to 32 with -g"},
           Case{{"-g"}, "--gpus needs a value; see berth run --help"},
           Case{{"--swap", "x"}, "--swap is not available in this version"},
           Case{{"--sharing", "mps", "x"}, "--sharing is not available in this version"},
           Case{{"--max-slowdown", "0.9", "x"},
                "'0.9' is not a slowdown: give a number from 1 (none at all) to 100, such as 1.1"},
           Case{{"--wait=-1", "x"}, "'-1' is not a time to wait: give whole seconds, or --wait alone to wait for ever"},
       }) {
    auto request = request_of(c.words);
    ASSERT_FALSE(request.ok()) << c.message;
    EXPECT_EQ(request.error().code, "usage");
    EXPECT_EQ(request.error().message, c.message);
  }
}

}  // namespace berth::cli
