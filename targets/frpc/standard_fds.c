#define _POSIX_C_SOURCE 200809L

#include "standard_fds.h"

#include <fcntl.h>
#include <unistd.h>

void occupy_standard_fds(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0) {
            /* open() takes the lowest free number, which is fd.  The wrong direction is intended.
             * */
            int taken = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
            (void)taken;
        }
    }
}
