import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;

/** What the tasks of one round have seen. The first error is shown, all are counted. */
final class Tally {
  /** A part of the work that is done by one thread. */
  interface Task {
    void run(int number) throws Exception;
  }

  private final List<long[]> parts = new ArrayList<>();
  private double[] us = {};
  int errors;
  long heldNs;
  double first = Double.POSITIVE_INFINITY;
  double last;

  synchronized void add(long[] ns) {
    parts.add(ns);
  }

  synchronized void granted(double at, long waitedNs, long heldNs) {
    add(new long[] {waitedNs});
    this.heldNs += heldNs;
    first = Math.min(first, at);
    last = Math.max(last, at);
  }

  synchronized void fail(Exception error) {
    if (errors++ == 0) {
      System.err.println(error);
    }
  }

  int count() {
    return us.length;
  }

  double percentile(double p) {
    return us.length == 0 ? 0 : us[(int) (p * (us.length - 1))];
  }

  /** Runs the task on all threads at the same time; returns how many seconds that took. */
  double concurrently(ExecutorService threads, int tasks, Task task) throws InterruptedException {
    long begin = System.nanoTime();
    List<Callable<Void>> calls = new ArrayList<>();
    for (int i = 0; i < tasks; i++) {
      int number = i;
      calls.add(
          () -> {
            try {
              task.run(number);
            } catch (Exception error) {
              fail(error);
            }
            return null;
          });
    }
    threads.invokeAll(calls);
    double seconds = (System.nanoTime() - begin) / 1e9;
    us = parts.stream().flatMapToLong(Arrays::stream).mapToDouble(ns -> ns / 1e3).sorted().toArray();
    return seconds;
  }
}
