/* The trace file's descriptor. It is opened at the first line, away from the low numbers, and looked
 * at before each use: a program may close every descriptor, and open its own under our number.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim.h"

struct opened {
    int number;
    dev_t device;
    ino_t inode;
    pid_t process;
};

static struct opened *current;

static int is_still_ours(const struct opened *file) {
    struct stat status;
    return !fstat(file->number, &status) && status.st_dev == file->device &&
           status.st_ino == file->inode;
}

/* Programs count on the next low number being free, and shells use those up to 255 themselves. */
static int moved_up(int number) {
    static const int lowest[] = {900, 300, 100, 20};
    for (size_t each = 0; each < sizeof lowest / sizeof *lowest; ++each) {
        int higher = fcntl(number, F_DUPFD_CLOEXEC, lowest[each]);
        if (higher >= 0) {
            close(number);
            return higher;
        }
    }
    return number;
}

static struct opened *open_trace(pid_t process) {
    /* NONBLOCK: were it a FIFO, opening would wait for a reader. */
    int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    /* A link in /proc leads to a file in memory; any other was put there by somebody since. */
    if (strncmp(shim_trace_path, "/proc/", 6)) flags |= O_NOFOLLOW;
    int number = open(shim_trace_path, flags, 0666);
    if (number < 0) return NULL;
    struct opened *file = malloc(sizeof *file);
    struct stat status;
    if (!file || fstat(number, &status) || !S_ISREG(status.st_mode)) {
        close(number);
        free(file);
        return NULL;
    }
    file->device = status.st_dev;
    file->inode = status.st_ino;
    file->process = process;
    file->number = moved_up(number);
    return file;
}

int shim_trace_descriptor(pid_t process) {
    struct opened *file = __atomic_load_n(&current, __ATOMIC_ACQUIRE);
    if (file && is_still_ours(file)) {
        if (file->process != process) { /* a fork's first line; counted twice by two threads at worst */
            file->process = process;
            shim_count(SHIM_PROCESSES);
        }
        return file->number;
    }
    struct opened *fresh = open_trace(process);
    if (!fresh) return -1;
    if (__atomic_compare_exchange_n(&current, &file, fresh, 0, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE)) {
        shim_count(SHIM_PROCESSES);
        return fresh->number; /* what stood there before may be in use by a thread: it stays */
    }
    close(fresh->number); /* another thread was first */
    free(fresh);
    return file->number;
}
