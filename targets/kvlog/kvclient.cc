// The client: writes and reads values, by any number of clients, each on its own connection.
#include "arguments.h"
#include "connection.h"
#include "log.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <getopt.h>
#include <iostream>
#include <memory>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace kvlog;

static const char help[] =
    "Usage: kvclient [--server HOST] [--port N] [--method write|read|mixed|ping]\n"
    "                [--clients N] [--requests N] [--bytes N] [--keys N] [--pings N]\n"
    "                [--gap-us N] [--log FILE]\n"
    "\n"
    "Writes values to a kvserver, or reads them back and checks them.\n"
    "\n"
    "  --server HOST    where the server is (default: 127.0.0.1)\n"
    "  --port N         its port (default: 7100)\n"
    "  --method METHOD  write (the default), read, mixed (write a value, then read it),\n"
    "                   or ping, which does nothing\n"
    "  --clients N      so many at once, each on a connection of its own (default: 1)\n"
    "  --requests N     so many of each client, one after another (default: 10)\n"
    "  --bytes N        the size of a value (default: 1000000)\n"
    "  --keys N         so many keys of each client, used in turn (default: 10)\n"
    "  --pings N        first ping so often, for clocks to be compared (default: 0)\n"
    "  --gap-us N       pause so long after each request (default: 0)\n"
    "  --log FILE       write a line for each RPC\n"
    "  --help           print this help\n"
    "\n"
    "Exit status: 0 if all went well, 1 if not or if SIGTERM or SIGINT stopped it,\n"
    "2 for wrong usage.\n";

namespace
{

struct Options {
    std::string server = "127.0.0.1";
    std::uint16_t port = 7100;
    std::string method = "write";
    int clients = 1;
    int requests = 10;
    int bytes = 1'000'000;
    int keys = 10;
    int pings = 0;
    int gap_us = 0;
    std::string log;
};

Options parse_options(int argc, char **argv)
{
    static const option known[] = {
        {"server", required_argument, nullptr, 's'},   {"port", required_argument, nullptr, 'p'},
        {"method", required_argument, nullptr, 'm'},   {"clients", required_argument, nullptr, 'c'},
        {"requests", required_argument, nullptr, 'n'}, {"bytes", required_argument, nullptr, 'b'},
        {"keys", required_argument, nullptr, 'k'},     {"pings", required_argument, nullptr, 'i'},
        {"gap-us", required_argument, nullptr, 'g'},   {"log", required_argument, nullptr, 'l'},
        {"help", no_argument, nullptr, 'h'},           {nullptr, 0, nullptr, 0},
    };
    Options options;
    auto in_range = [](const char *option, int least, int most) {
        return static_cast<int>(number(option, optarg, least, most));
    };
    int c;
    while ((c = getopt_long(argc, argv, "h", known, nullptr)) != -1) {
        switch (c) {
        case 's':
            options.server = optarg;
            break;
        case 'p':
            options.port = static_cast<std::uint16_t>(number("--port", optarg, 1, 65535));
            break;
        case 'm':
            options.method = optarg;
            if (options.method != "write" && options.method != "read" &&
                options.method != "mixed" && options.method != "ping")
                throw UsageError("--method '" + options.method +
                                 "' is not write, read, mixed or ping");
            break;
        case 'c':
            options.clients = in_range("--clients", 1, 1000);
            break;
        case 'n':
            options.requests = in_range("--requests", 0, 1'000'000'000);
            break;
        case 'b':
            options.bytes = in_range("--bytes", 0, most_body_bytes - 1000);
            break;
        case 'k':
            options.keys = in_range("--keys", 1, 1'000'000);
            break;
        case 'i':
            options.pings = in_range("--pings", 0, 1'000'000);
            break;
        case 'g':
            options.gap_us = in_range("--gap-us", 0, 1'000'000'000);
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

// A key's value, derived from the key, so that a reader can check it.
std::string value_of(const std::string &key, std::size_t bytes)
{
    std::string value(bytes, '\0');
    std::uint64_t state = std::hash<std::string>()(key) | 1;
    for (char &byte : value) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        byte = static_cast<char>(state >> 32);
    }
    return value;
}

std::atomic<bool> told_to_stop = false;

class Client
{
  public:
    Client(const Options &options, int number, Log &log)
        : options_(options), number_(number), log_(log),
          connection_(connect_to(options.server, options.port))
    {
    }

    // False after a message if anything went wrong.
    bool run()
    {
        std::string answer;
        for (int i = 0; i < options_.pings; i++)
            if (!call(Method::ping, "", answer))
                return false;
        for (int i = 0; i < options_.requests; i++)
            if (!ask(i))
                return false;
        return true;
    }

    void stop()
    {
        connection_.shut_down();
    }

  private:
    bool ask(int i)
    {
        bool is_mixed = options_.method == "mixed";
        std::string key = "client " + std::to_string(number_) + " key " +
                          std::to_string((is_mixed ? i / 2 : i) % options_.keys);
        std::string answer;
        bool went_well;
        if (options_.method == "ping")
            went_well = call(Method::ping, "", answer);
        else if (options_.method == "write" || (is_mixed && i % 2 == 0))
            went_well = call(Method::write, join(key, value_of(key, options_.bytes)), answer);
        else
            went_well = call(Method::read, join(key, ""), answer) && check(key, answer);
        if (went_well && options_.gap_us > 0)
            std::this_thread::sleep_for(std::chrono::microseconds(options_.gap_us));
        return went_well;
    }

    bool check(const std::string &key, const std::string &answer)
    {
        return answer == value_of(key, options_.bytes) ||
               complain("what was read of '" + key + "' is not what was written");
    }

    bool call(Method method, const std::string &body, std::string &answer)
    {
        std::uint64_t family = static_cast<std::uint64_t>(number_ + 1) << 32;
        Address local = connection_.local(), peer = connection_.peer();
        Header header, response;
        header.method = method;
        header.id = family + static_cast<std::uint64_t>(calls_ + 1);
        header.parent = family;
        header.client_ip = local.ip;
        header.client_port = local.port;
        header.server_ip = peer.ip;
        header.server_port = peer.port;
        header.request_bytes = static_cast<std::uint32_t>(body.size());
        header.client_send_ns = clock_.now_ns();
        response = header;
        bool answered = connection_.send(header, body) && connection_.receive_header(response) &&
                        is_sound(response) && response.id == header.id &&
                        connection_.receive_body(answer, response.response_bytes);
        response.client_receive_ns = clock_.now_ns();
        log_.write(std::to_string(number_) + ',' + std::to_string(calls_) + ',' + name_of(method) +
                       ',' + std::to_string(response.client_send_ns) + ',' +
                       std::to_string(response.client_receive_ns) + ',' +
                       (answered ? name_of(response.status) : "failed"),
                   response);
        calls_++;
        if (!answered)
            return complain("the connection to the server was closed");
        return response.status == Status::ok ||
               complain(std::string("the server answers: ") + name_of(response.status));
    }

    bool complain(const std::string &what) const
    {
        if (!told_to_stop)
            std::cerr << "kvclient: client " + std::to_string(number_) + ": " + what + "\n";
        return false;
    }

    const Options &options_;
    const int number_;
    Log &log_;
    Clock clock_;
    Connection connection_;
    int calls_ = 0;
};

int run(const Options &options)
{
    // SIGUSR1 comes when the last client is done.
    sigset_t stops;
    sigemptyset(&stops);
    for (int number : {SIGINT, SIGTERM, SIGUSR1})
        sigaddset(&stops, number);
    pthread_sigmask(SIG_BLOCK, &stops, nullptr);

    Log log(options.log, "client,request,method,begin_ns,end_ns,status");
    std::vector<std::unique_ptr<Client>> clients;
    for (int i = 0; i < options.clients; i++)
        clients.push_back(std::make_unique<Client>(options, i, log));

    std::atomic<bool> all_well = true;
    std::atomic<int> at_work = options.clients;
    std::vector<std::thread> threads;
    for (auto &client : clients)
        threads.emplace_back([&, &client = *client] {
            if (!client.run())
                all_well = false;
            if (--at_work == 0)
                kill(getpid(), SIGUSR1);
        });
    int caught;
    sigwait(&stops, &caught);
    if (caught != SIGUSR1) {
        told_to_stop = true;
        std::cerr << "kvclient: stopped by " << (caught == SIGINT ? "SIGINT" : "SIGTERM") << '\n';
        for (auto &client : clients)
            client->stop();
    }
    for (std::thread &thread : threads)
        thread.join();
    log.close();
    return all_well && !told_to_stop ? 0 : 1;
}

} // namespace

int main(int argc, char **argv)
{
    try {
        return run(parse_options(argc, argv));
    } catch (const UsageError &error) {
        std::cerr << "kvclient: " << error.what() << "\nTry 'kvclient --help'.\n";
        return 2;
    } catch (const std::exception &error) {
        std::cerr << "kvclient: " << error.what() << '\n';
        return 1;
    }
}
