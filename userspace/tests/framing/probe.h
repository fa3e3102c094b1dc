/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What bpf/framing.bpf.c needs of the kernel and of the rest of the kernel side, for user space. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef unsigned long long u64;
typedef int32_t s32;
typedef long long s64;

#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))
#define __hidden
#define barrier() __asm__ volatile("" ::: "memory")
#define barrier_var(var) __asm__ volatile("" : "+r"(var))
#define SEC(name)

#include "records.h"

/* Maps: as bpf/bpf_helpers.h declares them, all in one hash. */
enum { BPF_MAP_TYPE_HASH, BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_LRU_HASH };
enum { BPF_ANY, BPF_NOEXIST };
#define __uint(name, value) int(*name)[value]
#define __type(name, value) typeof(value) *name

struct element {
    void *map;
    void *value;
    struct element *next;
    u8 key[32];
};
static struct element *buckets[1 << 16];

static struct element **bucket_of(void *map, const void *key, size_t key_bytes)
{
    u64 hash = (u64)(uintptr_t)map;
    for (size_t i = 0; i < key_bytes; i++)
        hash = (hash ^ ((const u8 *)key)[i]) * 0x100000001b3;
    return &buckets[(hash ^ hash >> 32) & 0xffff];
}

static void *find_element(void *map, const void *key, size_t key_bytes)
{
    for (struct element *e = *bucket_of(map, key, key_bytes); e; e = e->next)
        if (e->map == map && memcmp(e->key, key, key_bytes) == 0)
            return e->value;
    return 0;
}

static void *add_element(void *map, const void *key, size_t key_bytes, size_t value_bytes)
{
    struct element *e = calloc(1, sizeof(*e)), **bucket = bucket_of(map, key, key_bytes);
    e->map = map;
    e->value = calloc(1, value_bytes);
    e->next = *bucket;
    memcpy(e->key, key, key_bytes);
    *bucket = e;
    return e->value;
}

static void *look_up_element(void *map, size_t type, u32 most, const void *key, size_t key_bytes,
                             size_t value_bytes)
{
    void *value = find_element(map, key, key_bytes);
    if (value || type != BPF_MAP_TYPE_ARRAY)
        return value;
    return *(const u32 *)key < most ? add_element(map, key, key_bytes, value_bytes) : 0;
}

static long update_element(void *map, const void *key, size_t key_bytes, const void *value,
                           size_t value_bytes, u64 flags)
{
    void *at = find_element(map, key, key_bytes);
    if (at && flags == BPF_NOEXIST)
        return -17;
    memcpy(at ? at : add_element(map, key, key_bytes, value_bytes), value, value_bytes);
    return 0;
}

static long delete_element(void *map, const void *key, size_t key_bytes)
{
    for (struct element **e = bucket_of(map, key, key_bytes); *e; e = &(*e)->next) {
        if ((*e)->map != map || memcmp((*e)->key, key, key_bytes) != 0)
            continue;
        struct element *gone = *e;
        *e = gone->next;
        free(gone->value);
        free(gone);
        return 0;
    }
    return -2;
}

#define bpf_map_lookup_elem(map, at)                                                               \
    ((typeof((map)->value))look_up_element(map, sizeof(*(map)->type) / sizeof(int),                \
                                           sizeof(*(map)->max_entries) / sizeof(int), at,          \
                                           sizeof(*(map)->key), sizeof(*(map)->value)))
#define bpf_map_update_elem(map, at, from, flags)                                                  \
    update_element(map, at, sizeof(*(map)->key), from, sizeof(*(map)->value), flags)
#define bpf_map_delete_elem(map, at) delete_element(map, at, sizeof(*(map)->key))

#define bpf_loop(most, body, context, flags)                                                       \
    ({                                                                                             \
        u32 made_ = 0;                                                                             \
        while (made_ < (most) && !body(made_++, context))                                          \
            ;                                                                                      \
        made_;                                                                                     \
    })

static long bpf_probe_read_user(void *to, u32 bytes, const void *from)
{
    memcpy(to, from, bytes);
    return 0;
}

/* What the kernel side counts is of no interest here. */
#define ADD(table, map, at, from) bpf_map_update_elem(map, at, from, BPF_NOEXIST)
#define DROP(table, map, at) bpf_map_delete_elem(map, at)
#define count_refused(table)
#define bpf_ktime_get_ns() 0
#define bpf_get_current_pid_tgid() 0

/* Options. */
static bool attaching, keep_methods = true;

/* What leaves the kernel side. */
static void record_told(const void *record);
#define emit(type, var, now)                                                                       \
    for (struct type it_ = {}, *var = &it_; var; record_told(&it_), var = 0)
#define output_record(record, bytes, now) ((void)(bytes), (void)(now), record_told(record))

/* What is known of a call, and of a channel: the fields that are used. */
struct pt_regs {
    unsigned long di, si, dx, r10;
};
#define CALL_ARG_2(regs) ((regs)->si)
#define CALL_ARG_3(regs) ((regs)->dx)
#define CALL_ARG_4(regs) ((regs)->r10)
#define STORE_LAST(address, value) __atomic_store_n(address, value, __ATOMIC_RELEASE)

struct socket_transfer {
    u64 channel;
    u64 reverse;
    u64 end;
    u32 bytes;
    u16 object_type;
    u16 flags;
    u32 framed;
};

struct task_state {
    u16 nr;
    struct socket_transfer socket;
};

struct channel_bytes {
    u32 written;
    u32 unreadable;
    u16 framed[2];
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 65536);
    __type(key, u64);
    __type(value, struct channel_bytes);
} channels;
