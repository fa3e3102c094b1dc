/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Streams of libuv (libuv.bpf.c). */
#pragma once
#include "runtime_tasks.h"

/* Offset of io_watcher in struct uv_stream_s (include/uv.h, the same in all of libuv 1.x).
 * uv__stream_io() identifies a stream by it. */
#define STREAM_WATCHER 136
