// The server: says hello, by gRPC's synchronous interface.
#include "arguments.h"
#include "greeter.grpc.pb.h"

#include <chrono>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <getopt.h>
#include <grpcpp/grpcpp.h>
#include <iostream>
#include <mutex>

static const char help[] =
    "Usage: greeter_server [--port N] [--log FILE]\n"
    "\n"
    "Says hello to whoever asks by gRPC.\n"
    "\n"
    "  --port N     listen on this port (default: 7400); 0 for any free one\n"
    "  --log FILE   write a line for each call\n"
    "  --help       print this help\n"
    "\n"
    "Says \"greeter_server: ready on port N\" once it listens; ends on SIGTERM or SIGINT.\n"
    "Exit status: 0 when it was told to end, 1 if it fails, 2 for wrong usage.\n";

namespace
{

struct Options {
    int port = 7400;
    std::string log;
};

Options parse_options(int argc, char **argv)
{
    static const option known[] = {
        {"port", required_argument, nullptr, 'p'},
        {"log", required_argument, nullptr, 'l'},
        {"help", no_argument, nullptr, 'h'},
        {nullptr, 0, nullptr, 0},
    };
    Options options;
    int c;
    while ((c = getopt_long(argc, argv, "h", known, nullptr)) != -1) {
        switch (c) {
        case 'p':
            options.port = static_cast<int>(number("--port", optarg, 0, 65535));
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

std::uint64_t now_ns()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(now.tv_nsec);
}

class Greeter final : public greeter::Greeter::Service
{
  public:
    explicit Greeter(const std::string &log_path)
    {
        if (log_path.empty())
            return;
        log_.open(log_path);
        if (!log_)
            throw std::runtime_error("cannot open " + log_path + ": " + std::strerror(errno));
        log_ << "method,arrival_ns,start_ns,end_ns,status\n";
    }

    grpc::Status SayHello(grpc::ServerContext *, const greeter::HelloRequest *request,
                          greeter::HelloReply *reply) override
    {
        std::uint64_t start_ns = now_ns();
        reply->set_message("Hello " + request->name());
        if (log_.is_open()) {
            std::uint64_t end_ns = now_ns();
            std::lock_guard<std::mutex> guard(mutex_);
            log_ << "SayHello," << start_ns << ',' << start_ns << ',' << end_ns << ",ok\n";
        }
        return grpc::Status::OK;
    }

    bool close_log()
    {
        if (log_.is_open())
            log_.close();
        return static_cast<bool>(log_);
    }

  private:
    std::ofstream log_;
    std::mutex mutex_;
};

int run(const Options &options)
{
    // Blocked before gRPC starts threads, so that only sigwait() gets these signals.
    sigset_t stops;
    sigemptyset(&stops);
    sigaddset(&stops, SIGINT);
    sigaddset(&stops, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &stops, nullptr);

    Greeter service(options.log);
    grpc::ServerBuilder builder;
    int port = 0;
    // Otherwise a second server could be started on the port, and get some of the calls.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddListeningPort("0.0.0.0:" + std::to_string(options.port),
                             grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service);
    std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    if (!server || port == 0)
        throw std::runtime_error("cannot listen on port " + std::to_string(options.port));
    std::cout << "greeter_server: ready on port " << port << std::endl;

    int caught;
    sigwait(&stops, &caught);
    server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(2));
    server->Wait();
    if (!service.close_log())
        throw std::runtime_error("cannot write " + options.log);
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    try {
        return run(parse_options(argc, argv));
    } catch (const UsageError &error) {
        std::cerr << "greeter_server: " << error.what() << "\nTry 'greeter_server --help'.\n";
        return 2;
    } catch (const std::exception &error) {
        std::cerr << "greeter_server: " << error.what() << '\n';
        return 1;
    }
}
