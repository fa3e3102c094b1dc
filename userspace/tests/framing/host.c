/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * bpf/framing.bpf.c as a program: reads connections from standard input, and prints the protocol
 * detected for each.
 *
 *     host run|attach writes|reads|both
 *
 * `writes`, `reads`: which ends of the calls are traced. Each connection is a name and its calls:
 * the length of the name (4 bytes, in native byte order, like all numbers), the name, the number of
 * calls, then for each call: the writer (0 client, 1 server), the number of bytes, the bytes. For
 * each connection a line is printed: its name, then, for the client's and for the server's bytes,
 * the protocol detected (0: none) and the number of frames or messages reported; for TLS, of
 * records of handshakes, and of the first one with data in mid-connection.
 *
 *     host claims
 *
 * Prints whether a stream keeps its framer while a CPU uses it and there are more streams than
 * framers; whether another stream gets the framer once no CPU uses it; and whether a CPU that found
 * the framer before then leaves it alone.
 */
#include <stdio.h>

#include "framing.bpf.c"

static u32 units[2];
static u8 protocols[2];

static void record_told(const void *record)
{
    const struct rec_hdr *hdr = record;
    const struct rec_unit *unit = record;
    const struct rec_gap *gap = record;
    if (hdr->kind == REC_GAP && (gap->why == GAP_HANDSHAKE || gap->why == GAP_ENCRYPTED)) {
        units[gap->channel & 1]++;
        protocols[gap->channel & 1] = PROTOCOL_TLS;
    }
    if (hdr->kind != REC_UNIT)
        return;
    units[unit->channel & 1]++;
    protocols[unit->channel & 1] = unit->protocol;
}

static u32 number_datagram(void)
{
    u32 n;
    if (fread(&n, sizeof(n), 1, stdin) != 1)
        exit(feof(stdin) ? 0 : 1);
    return n;
}

static void *bytes_of(u32 count)
{
    u8 *bytes = malloc(count + 1);
    if (fread(bytes, 1, count, stdin) != count)
        exit(1);
    bytes[count] = 0;
    return bytes;
}

/* A call has moved bytes. In the kernel, look_at_frames() (bpf/sockets.h) decides whether they
 * are examined. */
static void moved(u64 channel, u8 *bytes, u32 count, u64 end, bool is_write)
{
    struct channel_bytes *counted = bpf_map_lookup_elem(&channels, &channel);
    if (!counted) {
        struct channel_bytes none = {};
        bpf_map_update_elem(&channels, &channel, &none, BPF_NOEXIST);
        counted = bpf_map_lookup_elem(&channels, &channel);
    }
    if ((!is_write && counted->written) || counted->unreadable & (1U << !is_write))
        return;
    struct task_state state = {.nr = is_write ? NR_write : NR_read};
    state.socket = (struct socket_transfer){
        .channel = channel,
        .reverse = channel ^ 1,
        .end = end,
        .bytes = count,
        .object_type = OBJECT_TCP,
        .flags = is_write ? SYSCALL_WRITE : 0,
    };
    struct pt_regs regs = {.si = (unsigned long)bytes, .dx = count};
    struct rec_syscall sys = {};
    follow_frames(&state, &regs, &sys);
}

#define CHANNELS 20000 /* more than there are framers */

static u8 ping[] = "*1\r\n$4\r\nPING\r\n";

static void ping_all(u64 first)
{
    for (u64 channel = first; channel < first + CHANNELS; channel += 2)
        moved(channel, ping, sizeof(ping) - 1, (1ULL << 32) + sizeof(ping) - 1, true);
}

static int claims(void)
{
    struct framer_key key = {.channel = 2};
    moved(key.channel, ping, sizeof(ping) - 1, (1ULL << 32) + sizeof(ping) - 1, true);
    struct framer *f = framer_of(key.channel, key.side), before;
    u32 place = *bpf_map_lookup_elem(&framer_places, &key);
    f->busy = 1;
    before = *f;
    ping_all(4);
    f->used = before.used;
    printf("kept %d\n", memcmp(&before, f, sizeof(before)) == 0);
    f->busy = 0;
    ping_all(4 + CHANNELS);
    printf("given %d\n", f->channel != key.channel);
    /* As if this CPU had been delayed since it found the framer. */
    bpf_map_update_elem(&framer_places, &key, &place, BPF_ANY);
    before = *f;
    moved(key.channel, ping, sizeof(ping) - 1, (1ULL << 32) + 2 * (sizeof(ping) - 1), true);
    printf("left %d\n", memcmp(&before, f, sizeof(before)) == 0);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "claims") == 0)
        return claims();
    if (argc != 3)
        return 2;
    attaching = strcmp(argv[1], "attach") == 0;
    bool writes = strcmp(argv[2], "reads") != 0, reads = strcmp(argv[2], "writes") != 0;
    for (u64 connection = 2;; connection += 2) {
        char *name = bytes_of(number_datagram());
        u64 ends[2] = {1ULL << 32, 1ULL << 33};
        units[0] = units[1] = protocols[0] = protocols[1] = 0;
        for (u32 calls = number_datagram(); calls; calls--) {
            u32 who = number_datagram() & 1, count = number_datagram();
            u8 *bytes = bytes_of(count);
            ends[who] += count;
            if (writes)
                moved(connection + who, bytes, count, ends[who], true);
            if (reads)
                moved(connection + who, bytes, count, ends[who], false);
            free(bytes);
        }
        printf("%s %u %u %u %u\n", name, protocols[0], units[0], protocols[1], units[1]);
        free(name);
    }
}
