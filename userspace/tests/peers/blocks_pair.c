/*
 * blocks_pair ROUNDS FILE: a client sends requests to a server over pipes, ROUNDS times for each
 * kind of access to FILE. It drops FILE's pages from the page cache before each request. Prints the
 * letters of the accesses in the order of the requests.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILE_BYTES (16L << 20)
#define SPLIT_BYTES (8L << 20)
#define PIECE_BYTES 4096L
#define PIECES 16

static const char letters[] = "dmafw";

static int cached_fd, direct_fd;
static char *memory;
static aio_context_t context;

static void check(int failed, const char *what)
{
    if (failed) {
        perror(what);
        exit(1);
    }
}

/* One access larger than a device takes at a time. */
static void split(void)
{
    check(pread(direct_fd, memory, SPLIT_BYTES, 0) != SPLIT_BYTES, "read");
}

/* Several adjacent reads submitted together. */
static void merged(void)
{
    static struct iocb pieces[PIECES];
    struct iocb *list[PIECES];
    struct io_event events[PIECES];
    if (!context)
        check(syscall(SYS_io_setup, PIECES, &context) < 0, "io_setup");
    for (int i = 0; i < PIECES; i++) {
        pieces[i] = (struct iocb){
            .aio_fildes = direct_fd,
            .aio_lio_opcode = IOCB_CMD_PREAD,
            .aio_buf = (uint64_t)(uintptr_t)(memory + i * PIECE_BYTES),
            .aio_nbytes = PIECE_BYTES,
            .aio_offset = i * PIECE_BYTES,
        };
        list[i] = &pieces[i];
    }
    check(syscall(SYS_io_submit, context, PIECES, list) != PIECES, "io_submit");
    check(syscall(SYS_io_getevents, context, PIECES, PIECES, events, NULL) != PIECES,
          "io_getevents");
}

/* A fault on a page that is not in the page cache. */
static void fault(void)
{
    char *mapped = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, cached_fd, 0);
    check(mapped == MAP_FAILED, "mmap");
    check(madvise(mapped, FILE_BYTES, MADV_RANDOM) < 0, "madvise");
    (void)*(volatile char *)(mapped + FILE_BYTES / 4);
    check(munmap(mapped, FILE_BYTES) < 0, "munmap");
}

static void drop(void)
{
    check(posix_fadvise(cached_fd, 0, 0, POSIX_FADV_DONTNEED) != 0, "fadvise");
}

static void serve(char letter)
{
    switch (letter) {
    case 'd':
        split();
        break;
    case 'm':
        merged();
        break;
    case 'a':
        check(pread(cached_fd, memory, PIECE_BYTES, 8 << 20) != PIECE_BYTES, "read");
        break;
    case 'f':
        fault();
        break;
    case 'w':
        check(pwrite(cached_fd, memory, PIECE_BYTES, 0) != PIECE_BYTES, "write");
        check(fdatasync(cached_fd) < 0, "fdatasync");
        break;
    }
}

static void server(int input, int output)
{
    char letter;
    while (read(input, &letter, 1) == 1) {
        serve(letter);
        check(write(output, &letter, 1) != 1, "answer");
    }
    exit(0);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: blocks_pair ROUNDS FILE\n");
        return 2;
    }
    cached_fd = open(argv[2], O_RDWR | O_CREAT | O_EXCL, 0600);
    check(cached_fd < 0, argv[2]);
    check(posix_memalign((void **)&memory, PIECE_BYTES, SPLIT_BYTES) != 0, "memory");
    memset(memory, 1, SPLIT_BYTES);
    for (long at = 0; at < FILE_BYTES; at += SPLIT_BYTES)
        check(pwrite(cached_fd, memory, SPLIT_BYTES, at) != SPLIT_BYTES, argv[2]);
    check(fsync(cached_fd) < 0, argv[2]);
    direct_fd = open(argv[2], O_RDONLY | O_DIRECT);
    check(direct_fd < 0, "O_DIRECT");
    /* The first such read makes the kernel start a worker for the file system, and waits for it. */
    merged();
    check(syscall(SYS_io_destroy, context) < 0, "io_destroy");
    context = 0;

    int request[2], answer[2];
    check(pipe(request) < 0 || pipe(answer) < 0, "pipe");
    pid_t child = fork();
    check(child < 0, "fork");
    if (child == 0) {
        close(request[1]);
        close(answer[0]);
        server(request[0], answer[1]);
    }
    close(request[0]);
    close(answer[1]);
    for (int round = 0; round < atoi(argv[1]); round++)
        for (const char *letter = letters; *letter; letter++) {
            char answered;
            drop();
            check(write(request[1], letter, 1) != 1, "ask");
            check(read(answer[0], &answered, 1) != 1 || answered != *letter, "answer");
            putchar(*letter);
        }
    putchar('\n');
    close(request[1]);
    check(waitpid(child, NULL, 0) != child, "wait");
    return 0;
}
