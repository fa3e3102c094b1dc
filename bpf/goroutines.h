/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What goroutines wait for. */
#pragma once
#include "runtime_tasks.h"

#define GO_PROGRAMS 64 /* files whose goroutines can be followed at once */
#define GO_WAITS 256

/*
 * The meanings of a program's numbers for waits, which differ from one version of Go to the next.
 * User space fills the map and gives each program's hooks the program's number (the cookie of their
 * links).
 */
extern struct go_waits_map {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, GO_PROGRAMS *GO_WAITS);
    __type(key, u32);
    __type(value, u8);
} go_waits SEC(".maps");
