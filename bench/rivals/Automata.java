// The article's own design: a concurrent map of synchronized automata. Each line read is one round: all keys are
// enqueued, then dequeued; what is printed is its nanoseconds.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.ConcurrentHashMap;

public final class Automata {
    private static final int ACCEPT = 1, BLOCK = 2, DECLINE = 0;

    private static final class Automaton {
        private long head, waiter;
        private boolean gone;

        synchronized int enqueue(long owner) {
            if (gone)
                return -1;
            if (head == 0) {
                head = owner;
                return ACCEPT;
            }
            if (waiter != 0)
                return DECLINE;
            waiter = owner;
            return BLOCK;
        }

        synchronized boolean dequeue(long owner, ConcurrentHashMap<Long, Automaton> map, Long key) {
            if (head != owner)
                return false;
            head = waiter;
            waiter = 0;
            if (head != 0)
                notifyAll();
            else {
                gone = true;
                map.remove(key, this);
            }
            return true;
        }
    }

    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[0]);
        Long[] keys = new Long[count];
        long next = 1;
        for (int i = 0; i < count; i++)
            keys[i] = next = next * 6364136223846793005L + 1442695040888963407L;
        ConcurrentHashMap<Long, Automaton> map = new ConcurrentHashMap<>(2 * count);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        while (in.readLine() != null) {
            long begun = System.nanoTime();
            for (Long key : keys)
                while (map.computeIfAbsent(key, unused -> new Automaton()).enqueue(7) < 0) {
                }
            for (Long key : keys) {
                Automaton automaton = map.get(key);
                if (automaton == null || !automaton.dequeue(7, map, key))
                    throw new IllegalStateException();
            }
            System.out.println(System.nanoTime() - begun);
        }
    }
}
