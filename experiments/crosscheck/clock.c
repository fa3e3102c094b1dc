/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* clock    Counts until its standard input ends; then prints a line for each thread: tid, pid, the
 * unseen charged time, and the sums of each kind of stints. */
#include <stdio.h>
#include <unistd.h>

#include <bpf/bpf.h>

#include "clock.h"
#include "clock.skel.h"

static void tell(unsigned tid, const struct account *of)
{
    printf("%u %u %llu", tid, of->pid, of->unseen_ns);
    for (unsigned kind = 0; kind < sizeof(of->kinds) / sizeof(*of->kinds); kind++) {
        const struct stints *s = &of->kinds[kind];
        printf(" %llu %llu %llu %llu %llu", s->count, s->charged_ns, s->hook_ns,
               s->unread_before_ns, s->unread_at_end_ns);
    }
    puts("");
}

int main(void)
{
    struct clock *counting = clock__open_and_load();
    if (!counting || clock__attach(counting)) {
        fprintf(stderr, "clock: its programs cannot be loaded or attached\n");
        return 1;
    }
    puts("ready");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0) {
    }
    clock__detach(counting);
    int map = bpf_map__fd(counting->maps.accounts);
    __u32 *before = 0, tid;
    for (; bpf_map_get_next_key(map, before, &tid) == 0; before = &tid) {
        struct account of;
        if (bpf_map_lookup_elem(map, &tid, &of) == 0)
            tell(tid, &of);
    }
    clock__destroy(counting);
    return 0;
}
