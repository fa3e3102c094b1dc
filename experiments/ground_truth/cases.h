/* cases: what can be injected; one table a file. */
#ifndef CASES_H
#define CASES_H

#include "server_kit.h"

/* Each list ends with a case without name. */
extern const struct kit_case cpu_cases[];
extern const struct kit_case wait_cases[];
extern const struct kit_case hop_cases[];
extern const struct kit_case file_cases[];
extern const struct kit_case queue_cases[];
extern const struct kit_case contention_cases[];
extern const struct kit_case copy_cases[];
extern const struct kit_case mixed_cases[];

/* A different number for every request, so that an error shows that a mean would hide. */
static inline uint64_t vary(unsigned seq, uint64_t least, uint64_t most)
{
    return least + (seq * UINT64_C(2654435761) >> 7) % (most - least + 1);
}

#endif
