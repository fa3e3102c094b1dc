/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* State shared by the programs of direct hooks: defines what direct.h declares. */
#include "direct.h"

struct direct_tasks_map direct_tasks SEC(".maps");
