#include "calls.h"

#include "greeter.grpc.pb.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <grpcpp/grpcpp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

namespace
{

constexpr std::chrono::seconds patience(10);

// A client's report to its parent, in shared memory; the calls follow.
struct Report {
    std::size_t calls;
    char failure[256];
};

volatile std::sig_atomic_t stopped_by = 0;

void stop(int number)
{
    stopped_by = number;
}

std::system_error system_error(const char *what)
{
    return std::system_error(errno, std::generic_category(), what);
}

std::uint64_t now_ns()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(now.tv_nsec);
}

// Makes one call and adds its times to the report; false if it failed.
bool say_hello(greeter::Greeter::Stub &stub, const std::string &name, Report &report, Call &call)
{
    grpc::ClientContext context;
    greeter::HelloRequest request;
    greeter::HelloReply reply;
    context.set_deadline(std::chrono::system_clock::now() + patience);
    request.set_name(name);
    call.begin_ns = now_ns();
    grpc::Status status = stub.SayHello(&context, request, &reply);
    call.end_ns = now_ns();
    if (status.ok() && reply.message() == "Hello " + name) {
        report.calls++;
        return true;
    }
    std::string why = status.ok() ? "the answer is wrong" : status.error_message();
    std::strncpy(report.failure, why.c_str(), sizeof report.failure - 1);
    return false;
}

// Runs in a separate process, in which gRPC has not been used before.
int run_client(const Plan &plan, int number, Report &report, Call *calls, int ready, int begin)
{
    std::string name = "client " + std::to_string(number);
    auto channel = grpc::CreateChannel(plan.target, grpc::InsecureChannelCredentials());
    auto stub = greeter::Greeter::NewStub(channel);
    char byte = 0;
    if (!say_hello(*stub, name, report, calls[0]))
        return 1;
    if (write(ready, &byte, 1) != 1)
        return 1;
    while (read(begin, &byte, 1) < 0 && errno == EINTR && !stopped_by)
        ; // all clients begin at the end of the pipe
    for (int i = 1; i <= plan.requests && !stopped_by; i++)
        if (!say_hello(*stub, name, report, calls[i]))
            return 1;
    return 0;
}

// The reports of all clients, and room for their calls.
class SharedReports
{
  public:
    explicit SharedReports(const Plan &plan)
        : calls_each_(static_cast<std::size_t>(plan.requests) + 1),
          bytes_((sizeof(Report) + calls_each_ * sizeof(Call)) *
                 static_cast<std::size_t>(plan.clients))
    {
        void *memory =
            mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            throw system_error("cannot get memory for the calls");
        reports_ = static_cast<Report *>(memory);
        calls_ = reinterpret_cast<Call *>(reports_ + plan.clients);
    }
    SharedReports(const SharedReports &) = delete;
    ~SharedReports()
    {
        munmap(reports_, bytes_);
    }
    Report &report(int client)
    {
        return reports_[client];
    }
    Call *calls(int client)
    {
        return calls_ + static_cast<std::size_t>(client) * calls_each_;
    }

  private:
    std::size_t calls_each_, bytes_;
    Report *reports_;
    Call *calls_;
};

void catch_signals()
{
    struct sigaction action = {};
    action.sa_handler = stop; // without SA_RESTART, so that signals interrupt waiting calls
    sigaction(SIGTERM, &action, nullptr);
    sigaction(SIGINT, &action, nullptr);
}

} // namespace

Outcome make_calls(const Plan &plan)
{
    SharedReports shared(plan);
    int ready[2], begin[2];
    if (pipe(ready) < 0 || pipe(begin) < 0)
        throw system_error("pipe");
    catch_signals();
    std::vector<pid_t> children;
    for (int client = 0; client < plan.clients; client++) {
        pid_t parent = getpid(), pid = fork();
        if (pid < 0) {
            int saved = errno;
            for (pid_t child : children)
                kill(child, SIGKILL);
            errno = saved;
            throw system_error("cannot start a client");
        }
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(ready[0]);
            close(begin[1]);
            if (getppid() != parent)
                _exit(1);
            _exit(run_client(plan, client, shared.report(client), shared.calls(client), ready[1],
                             begin[0]));
        }
        children.push_back(pid);
    }
    close(ready[1]);
    close(begin[0]);
    char byte;
    // Waits until each client is ready, or has ended because its first call failed.
    for (int left = plan.clients; left > 0 && !stopped_by;) {
        ssize_t got = read(ready[0], &byte, 1);
        if (got == 0)
            break;
        left -= got > 0;
    }
    close(begin[1]);

    Outcome outcome;
    bool told = false;
    for (std::size_t client = 0; client < children.size();) {
        if (stopped_by && !told) {
            for (std::size_t other = client; other < children.size(); other++)
                kill(children[other], SIGTERM);
            told = true;
        }
        int status;
        if (waitpid(children[client], &status, 0) < 0) {
            if (errno != EINTR)
                throw system_error("waitpid");
            continue;
        }
        auto number = static_cast<int>(client);
        const Report &report = shared.report(number);
        const Call *calls = shared.calls(number);
        outcome.clients.emplace_back(calls, calls + report.calls);
        outcome.failures.emplace_back(report.failure);
        if (WIFSIGNALED(status))
            outcome.failures.back() = "killed by signal " + std::to_string(WTERMSIG(status));
        client++;
    }
    close(ready[0]);
    outcome.stopped_by = stopped_by;
    return outcome;
}
