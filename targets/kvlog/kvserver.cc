// The server: a thread for each connection, values in memory.
#include "arguments.h"
#include "service.h"

#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <getopt.h>
#include <iostream>
#include <list>
#include <memory>
#include <mutex>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

using namespace kvlog;

static const char help[] =
    "Usage: kvserver [--port N] [--log FILE] [--clock-shift-us N] [--memory-mb N]\n"
    "\n"
    "Stores values by key in memory, for clients that reach it by TCP.\n"
    "\n"
    "  --port N             listen on this port (default: 7100); 0 for any free one\n"
    "  --log FILE           write a line for each RPC\n"
    "  --clock-shift-us N   have the clock that stamps RPCs go N microseconds ahead\n"
    "                       (or, if negative, behind), as another machine's would\n"
    "  --memory-mb N        refuse to store more than N MiB (default: 1024)\n"
    "  --help               print this help\n"
    "\n"
    "Says \"kvserver: ready on port N\" once it listens; ends on SIGTERM or SIGINT.\n"
    "Exit status: 0 when it was told to end, 1 if it fails, 2 for wrong usage.\n";

namespace
{

struct Options {
    std::uint16_t port = 7100;
    std::string log;
    std::int64_t clock_shift_ns = 0;
    std::size_t memory_bytes = std::size_t(1024) << 20;
};

Options parse_options(int argc, char **argv)
{
    static const option known[] = {
        {"port", required_argument, nullptr, 'p'},
        {"log", required_argument, nullptr, 'l'},
        {"clock-shift-us", required_argument, nullptr, 'c'},
        {"memory-mb", required_argument, nullptr, 'm'},
        {"help", no_argument, nullptr, 'h'},
        {nullptr, 0, nullptr, 0},
    };
    Options options;
    int c;
    while ((c = getopt_long(argc, argv, "h", known, nullptr)) != -1) {
        switch (c) {
        case 'p':
            options.port = static_cast<std::uint16_t>(number("--port", optarg, 0, 65535));
            break;
        case 'l':
            options.log = optarg;
            break;
        case 'c':
            options.clock_shift_ns =
                1000 * number("--clock-shift-us", optarg, -1'000'000'000'000, 1'000'000'000'000);
            break;
        case 'm':
            options.memory_bytes =
                static_cast<std::size_t>(number("--memory-mb", optarg, 1, 1 << 20)) << 20;
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

// The open connections, each served by its own thread.
class Sessions
{
  public:
    explicit Sessions(Service &service) : service_(service)
    {
    }

    void start(Descriptor socket)
    {
        auto connection = std::make_shared<Connection>(std::move(socket));
        std::lock_guard guard(mutex_);
        auto place = open_.insert(open_.end(), connection);
        // Detached, so that an ended thread is freed at once; end() waits for the remaining
        // threads.
        try {
            std::thread([this, connection, place] {
                service_.serve(*connection);
                std::lock_guard guard(mutex_);
                open_.erase(place);
                changed_.notify_all();
            }).detach();
        } catch (const std::system_error &error) {
            std::cerr << "kvserver: cannot start a thread: " << error.what() << '\n';
            open_.erase(place);
        }
    }

    void end()
    {
        std::unique_lock guard(mutex_);
        for (auto &connection : open_)
            connection->shut_down();
        changed_.wait(guard, [this] { return open_.empty(); });
    }

  private:
    Service &service_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::list<std::shared_ptr<Connection>> open_;
};

// Accepts connections until the listening socket is shut down.
void accept_connections(int listener, Sessions &sessions)
{
    for (;;) {
        Descriptor connection(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
        if (connection.get() >= 0)
            sessions.start(std::move(connection));
        else if (errno == EINVAL)
            return;
        else if (errno != EINTR && errno != ECONNABORTED) {
            std::cerr << "kvserver: cannot accept: " << std::strerror(errno) << '\n';
            usleep(10'000); /* most likely out of descriptors */
        }
    }
}

int run(const Options &options)
{
    sigset_t stops;
    sigemptyset(&stops);
    sigaddset(&stops, SIGINT);
    sigaddset(&stops, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &stops, nullptr);

    Log log(options.log, "method,arrival_ns,start_ns,end_ns,status");
    Store store(options.memory_bytes);
    Service service(store, log, Clock(options.clock_shift_ns));
    Sessions sessions(service);
    Descriptor listener = listen_on(options.port);
    sockaddr_in address = {};
    socklen_t bytes = sizeof address;
    getsockname(listener.get(), reinterpret_cast<sockaddr *>(&address), &bytes);
    std::cout << "kvserver: ready on port " << ntohs(address.sin_port) << std::endl;

    std::thread acceptor(accept_connections, listener.get(), std::ref(sessions));
    int caught;
    sigwait(&stops, &caught);
    shutdown(listener.get(), SHUT_RDWR);
    acceptor.join();
    sessions.end();
    log.close();
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    try {
        return run(parse_options(argc, argv));
    } catch (const UsageError &error) {
        std::cerr << "kvserver: " << error.what() << "\nTry 'kvserver --help'.\n";
        return 2;
    } catch (const std::exception &error) {
        std::cerr << "kvserver: " << error.what() << '\n';
        return 1;
    }
}
