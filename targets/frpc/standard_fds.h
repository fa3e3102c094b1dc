/* A sane start for a program that may be run with a standard stream closed. */
#ifndef STANDARD_FDS_H
#define STANDARD_FDS_H

/*
 * Occupies each closed one of the descriptors 0, 1 and 2, so that a pipe or file opened later does
 * not become a standard stream by accident.  Using the stream still fails with EBADF.
 */
void occupy_standard_fds(void);

#endif
