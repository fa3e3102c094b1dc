#include "kit_io.h"

#include "give_up.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

int kit_read(int fd, void *buffer, uint32_t length)
{
    uint32_t got = 0;
    while (got < length) {
        ssize_t n = read(fd, (char *)buffer + got, length - got);
        if (n < 0)
            give_up("read from", "a channel");
        if (n == 0)
            return 0;
        got += (uint32_t)n;
    }
    return 1;
}

void kit_write(int fd, const void *buffer, uint32_t length)
{
    uint32_t put = 0;
    while (put < length) {
        ssize_t n = write(fd, (const char *)buffer + put, length - put);
        if (n < 0)
            give_up("write to", "a channel");
        put += (uint32_t)n;
    }
}

void kit_pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) < 0)
        give_up("pin a thread to", "a CPU");
}

int kit_fork(void)
{
    pid_t pid = fork();
    if (pid < 0)
        give_up("fork", "a helper");
    if (pid == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return pid;
}

void kit_kill(const int *pids, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
}
