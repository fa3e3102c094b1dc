/* kit_io: transfers that are whole, and helper processes that do not outlive their parent. */
#ifndef KIT_IO_H
#define KIT_IO_H

#include <stdint.h>

/* Whole transfers or the end of the process; kit_read() returns 0 at end of file. */
int kit_read(int fd, void *buffer, uint32_t length);
void kit_write(int fd, const void *buffer, uint32_t length);

/* Ties the calling thread to a CPU. */
void kit_pin(int cpu);

/* Forks a helper process that dies with its parent; 0 in the child. */
int kit_fork(void);

/* Kills helper processes and collects them. */
void kit_kill(const int *pids, unsigned count);

#endif
