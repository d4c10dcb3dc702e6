/* What a round trip of two processes needs: two sleeps on a futex, or two pipes. */
#include "clock.h"
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>

static void hand(uint32_t *word, uint32_t mine, uint32_t theirs) {
    __atomic_store_n(word, theirs, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
    while (__atomic_load_n(word, __ATOMIC_SEQ_CST) != mine)
        syscall(SYS_futex, word, FUTEX_WAIT, theirs, NULL, NULL, 0);
}

int main(void) {
    uint32_t *word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int there[2], back[2];
    char bytes[104] = {0};
    if (pipe(there) != 0 || pipe(back) != 0)
        return 1;
    pid_t child = fork();
    if (child == 0) {
        while (__atomic_load_n(word, __ATOMIC_SEQ_CST) != 2)
            syscall(SYS_futex, word, FUTEX_WAIT, 1, NULL, NULL, 0);
        for (;;)
            hand(word, 2, 1);
    }
    pid_t echo = fork();
    if (echo == 0)
        while (read(there[0], bytes, sizeof bytes) > 0)
            if (write(back[1], bytes, sizeof bytes) < 0)
                _exit(1);
    MEASURE("round trip by futex", 5, 2000, hand(word, 1, 2));
    MEASURE("round trip by two pipes", 5, 2000, {
        if (write(there[1], bytes, sizeof bytes) < 0 || read(back[0], bytes, sizeof bytes) < 0)
            return 1;
    });
    kill(child, SIGKILL);
    kill(echo, SIGKILL);
    return 0;
}
