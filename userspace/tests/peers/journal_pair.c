/*
 * journal_pair ROUNDS DIRECTORY: a client sends ROUNDS requests to a server over pipes. For each,
 * the server makes four directories in DIRECTORY. It flushes nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void check(int failed, const char *what)
{
    if (failed) {
        perror(what);
        exit(1);
    }
}

static void serve(int ask, int answer, const char *directory)
{
    char path[4096];
    for (int round; read(ask, &round, sizeof round) == sizeof round;) {
        for (int i = 0; i < 4; i++) {
            snprintf(path, sizeof path, "%s/%d.%d", directory, round, i);
            check(mkdir(path, 0755) < 0, path);
        }
        check(write(answer, &round, sizeof round) != sizeof round, "write");
    }
    exit(0);
}

int main(int argc, char **argv)
{
    int ask[2], answer[2];
    check(argc != 3 || pipe(ask) < 0 || pipe(answer) < 0, "journal_pair ROUNDS DIRECTORY");
    pid_t server = fork();
    check(server < 0, "fork");
    if (!server) {
        close(ask[1]);
        close(answer[0]);
        serve(ask[0], answer[1], argv[2]);
    }
    close(ask[0]);
    close(answer[1]);
    for (int round = 0; round < atoi(argv[1]); round++) {
        int back;
        check(write(ask[1], &round, sizeof round) != sizeof round, "write");
        check(read(answer[0], &back, sizeof back) != sizeof back, "read");
    }
    close(ask[1]);
    check(wait(NULL) != server, "wait");
    return 0;
}
