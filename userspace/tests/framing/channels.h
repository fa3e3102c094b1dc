/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* In the place of bpf/channels.h: what is needed of it is in probe.h here. */
#pragma once
#include "look.h"
#include "probe.h"
