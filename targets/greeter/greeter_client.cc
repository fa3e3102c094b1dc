// The client: round-trip times and throughput of calls to a greeter_server.
#include "arguments.h"
#include "calls.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <getopt.h>
#include <iostream>

static const char help[] =
    "Usage: greeter_client [--server HOST:PORT] [--clients N] [--requests N] [--log FILE]\n"
    "\n"
    "Has clients, each a process with a channel of its own, call a greeter_server: each\n"
    "once, which includes the connection; then all together, one call after another.\n"
    "Prints the times of the first calls, the percentiles of the others, and their\n"
    "throughput: by the clock on the wall, and as it would seem to be if it were taken\n"
    "from the sum of latencies that are truncated to whole milliseconds.\n"
    "\n"
    "  --server HOST:PORT   (default: 127.0.0.1:7400)\n"
    "  --clients N          (default: 1)\n"
    "  --requests N         of each client, after its first (default: 1000)\n"
    "  --log FILE           write a line for each call\n"
    "  --help               print this help\n"
    "\n"
    "Exit status: 0 if all went well, 1 if not or if SIGTERM or SIGINT stopped it,\n"
    "2 for wrong usage.\n";

namespace
{

struct Options {
    Plan plan;
    std::string log;
};

Options parse_options(int argc, char **argv)
{
    static const option known[] = {
        {"server", required_argument, nullptr, 's'},   {"clients", required_argument, nullptr, 'c'},
        {"requests", required_argument, nullptr, 'n'}, {"log", required_argument, nullptr, 'l'},
        {"help", no_argument, nullptr, 'h'},           {nullptr, 0, nullptr, 0},
    };
    Options options;
    int c;
    while ((c = getopt_long(argc, argv, "h", known, nullptr)) != -1) {
        switch (c) {
        case 's':
            options.plan.target = optarg;
            break;
        case 'c':
            options.plan.clients = static_cast<int>(number("--clients", optarg, 1, 1000));
            break;
        case 'n':
            options.plan.requests = static_cast<int>(number("--requests", optarg, 1, 10'000'000));
            break;
        case 'l':
            options.log = optarg;
            break;
        case 'h':
            std::cout << help;
            std::exit(std::cout.flush() ? 0 : 1);
        default:
            throw UsageError("wrong usage");
        }
    }
    if (optind < argc)
        throw UsageError(std::string("unexpected argument '") + argv[optind] + "'");
    return options;
}

class Log
{
  public:
    explicit Log(const std::string &path) : path_(path)
    {
        if (path.empty())
            return;
        file_.open(path);
        if (!file_)
            throw std::runtime_error("cannot open " + path + ": " + std::strerror(errno));
        file_ << "client,request,method,begin_ns,end_ns,status\n";
    }

    void write(const Outcome &outcome)
    {
        if (!file_.is_open())
            return;
        for (std::size_t client = 0; client < outcome.clients.size(); client++) {
            std::size_t request = 0;
            for (const Call &call : outcome.clients[client])
                file_ << client << ',' << request++ << ",SayHello," << call.begin_ns << ','
                      << call.end_ns << ",ok\n";
        }
        file_.close();
        if (!file_)
            throw std::runtime_error("cannot write " + path_);
    }

  private:
    std::string path_;
    std::ofstream file_;
};

void print_figures(std::vector<std::vector<Call>> clients)
{
    std::printf("first call, ms:");
    for (std::vector<Call> &calls : clients) {
        std::printf(" %.3f", static_cast<double>(calls[0].end_ns - calls[0].begin_ns) / 1e6);
        calls.erase(calls.begin());
    }
    Figures f = figures_of(clients);
    std::size_t total = 0;
    for (const std::vector<Call> &calls : clients)
        total += calls.size();
    std::printf("\n%zu clients, %zu later calls, us: p50 %.1f, p90 %.1f, p99 %.1f, maximum %.1f\n",
                clients.size(), total, f.p50_us, f.p90_us, f.p99_us, f.most_us);
    std::printf("throughput, calls/ms: %.3f by the clock on the wall\n", f.calls_per_ms);
    std::printf("    %.3f by the sum of latencies\n", f.untruncated_calls_per_ms);
    std::printf("    %.3f by the sum of latencies truncated to whole ms, of which %llu are 0\n",
                f.truncated_calls_per_ms, static_cast<unsigned long long>(f.truncated_to_nothing));
}

int run(const Options &options)
{
    Log log(options.log);
    Outcome outcome = make_calls(options.plan);
    log.write(outcome);
    bool all_well = true;
    for (std::size_t client = 0; client < outcome.failures.size(); client++) {
        if (outcome.failures[client].empty())
            continue;
        all_well = false;
        std::cerr << "greeter_client: client " << client << ": " << outcome.failures[client]
                  << '\n';
    }
    if (outcome.stopped_by) {
        std::cerr << "greeter_client: stopped by "
                  << (outcome.stopped_by == SIGINT ? "SIGINT" : "SIGTERM") << '\n';
        return 1;
    }
    if (!all_well)
        return 1;
    print_figures(std::move(outcome.clients));
    return std::fflush(stdout) == EOF;
}

} // namespace

int main(int argc, char **argv)
{
    try {
        return run(parse_options(argc, argv));
    } catch (const UsageError &error) {
        std::cerr << "greeter_client: " << error.what() << "\nTry 'greeter_client --help'.\n";
        return 2;
    } catch (const std::exception &error) {
        std::cerr << "greeter_client: " << error.what() << '\n';
        return 1;
    }
}
