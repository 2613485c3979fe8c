/* The first process of an emulated machine that lives for one file: runs each line of /runs, a program and
   its words, says on the console how each ended, and then that all did. */
#include <stdio.h>
#include <string.h>
#include <sys/klog.h>
#include <sys/reboot.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

static int ended(char *line) {
  char *words[16];
  int count = 0, status = -1;
  for (char *word = strtok(line, " \n"); word && count < 15; word = strtok(NULL, " \n"))
    words[count++] = word;
  words[count] = NULL;
  const pid_t child = count ? fork() : -1;
  if (child == 0) {
    execv(words[0], words);
    perror(words[0]);
    _exit(127);
  }
  if (child > 0) waitpid(child, &status, 0);
  return status;
}

int main(void) {
  char line[256];
  klogctl(6, NULL, 0); /* Linux says nothing more on the console */
  puts("\nLinux is up");
  fflush(stdout);
  FILE *runs = fopen("/runs", "r");
  while (runs && fgets(line, sizeof line, runs)) {
    printf("ended: %d\n", ended(line));
    fflush(stdout);
  }
  puts("all ended");
  fflush(stdout);
  tcdrain(STDOUT_FILENO); /* the machine's end waits for no line */
  reboot(RB_POWER_OFF);
  for (;;) pause();
}
