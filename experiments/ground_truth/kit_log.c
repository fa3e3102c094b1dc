#include "kit_log.h"

#include "give_up.h"

static void write_header(FILE *log, const struct kit_case *injected)
{
    fputs("client_pid,seq,start_ns,written_ns,asked_ns,end_ns,thread,poll_from_ns,poll_to_ns,"
          "taken_ns,answering_ns,answered_ns",
          log);
    if (injected->watch)
        fputs(
            ",write_awake_ns,write_asleep_ns,read_runnable_ns,poll_runnable_ns,served_runnable_ns",
            log);
    for (unsigned i = 0; i < KIT_TRUTHS && injected->truths[i]; i++)
        fprintf(log, ",%s", injected->truths[i]);
    fputc('\n', log);
}

static void write_numbers(FILE *log, const uint64_t *numbers, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        fprintf(log, ",%llu", (unsigned long long)numbers[i]);
}

static void write_row(FILE *log, const struct kit_case *injected, const struct kit_row *row)
{
    const uint64_t stamps[] = {
        row->start_ns,     row->written_ns, row->asked_ns, row->end_ns,       row->thread,
        row->poll_from_ns, row->poll_to_ns, row->taken_ns, row->answering_ns, row->answered_ns,
    };
    const uint64_t watched[] = {
        usage_awake_ns(row->write), usage_asleep_ns(row->write), row->read.runnable_ns,
        row->poll_runnable_ns,      row->served.runnable_ns,
    };
    unsigned truths = 0;

    write_numbers(log, stamps, sizeof stamps / sizeof *stamps);
    if (injected->watch)
        write_numbers(log, watched, sizeof watched / sizeof *watched);
    while (truths < KIT_TRUTHS && injected->truths[truths])
        truths++;
    write_numbers(log, row->truth, truths);
    fputc('\n', log);
}

void kit_log(FILE *log, const char *path, const struct kit_case *injected,
             const struct kit_row *rows, unsigned clients, const int *pids, unsigned requests)
{
    write_header(log, injected);
    for (unsigned client = 0; client < clients; client++) {
        for (unsigned seq = 0; seq < requests; seq++) {
            fprintf(log, "%d,%u", pids[client], seq);
            write_row(log, injected, &rows[client * requests + seq]);
        }
    }
    bool failed_before = ferror(log);
    if (fclose(log) == EOF || failed_before)
        give_up("write", path);
}
