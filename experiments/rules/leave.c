// A program whose second thread ends it while its first thread works on another CPU.
#include <pthread.h>
#include <unistd.h>

static void *leave(void *unused)
{
    (void)unused;
    usleep(2000);
    _exit(0);
}

int main(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, leave, NULL) != 0)
        return 1;
    for (volatile long i = 0;; i++) {
    }
}
