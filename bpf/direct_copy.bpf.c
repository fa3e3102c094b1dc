/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Copies between user memory and the kernel's (lib/iov_iter.c). Pipes, sockets and files all copy
 * by these; what goes by others (checksums made meanwhile, a cache left out) is not told. */
#include "direct.h"

DIRECT(copy_to, DIRECT_COPY, FUNCTION_COPY, DIRECT_NOTHING, DIRECT_RESULT)
DIRECT(copy_from, DIRECT_COPY, FUNCTION_COPY, DIRECT_NOTHING, DIRECT_RESULT)
DIRECT(copy_from_atomic, DIRECT_COPY, FUNCTION_COPY, DIRECT_NOTHING, DIRECT_RESULT)
