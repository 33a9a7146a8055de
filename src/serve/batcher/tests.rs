use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// So long that a test that waits for it hangs.
const FOREVER: Duration = Duration::from_secs(100_000);

fn together(batch: usize, queue: usize) -> Together {
    Together { batch, delay: FOREVER, queue, threads: 1, outputs: 1 }
}

/// A queue that waits for a message before it computes a batch, and sends the number of samples in it. A sample is a byte, its answer twice that.
fn held(together: Together) -> (Batcher, mpsc::Sender<()>, mpsc::Receiver<usize>) {
    let (go, gate) = mpsc::channel::<()>();
    let (sizes_sent, sizes) = mpsc::channel();
    let (gate, sizes_sent) = (Mutex::new(gate), Mutex::new(sizes_sent));
    let compute = move |rows: &[&[u8]], out: &mut [f32]| {
        sizes_sent.lock().unwrap().send(out.len()).unwrap();
        gate.lock().unwrap().recv().unwrap();
        out.iter_mut().zip(rows[0]).for_each(|(out, byte)| *out = 2.0 * f32::from(*byte));
        Ok(())
    };
    (Batcher::start(together, Arc::new(compute), Arc::default()).unwrap(), go, sizes)
}

fn ask(batcher: &Batcher, samples: &[u8]) -> oneshot::Receiver<Computed> {
    batcher.submit(vec![samples.to_vec()], samples.len()).unwrap()
}

#[test]
fn what_waits_is_computed_together_and_each_gets_its_own() {
    let (batcher, go, sizes) = held(together(4, 16));
    let first = ask(&batcher, &[1]);
    // It is alone, and is not delayed.
    assert_eq!(sizes.recv().unwrap(), 1);
    let others = [&[2u8, 3][..], &[4], &[5, 6], &[7]].map(|samples| ask(&batcher, samples));
    (0..2).for_each(|_| go.send(()).unwrap());
    // Two and one are fewer than four; two more would be more than that.
    assert_eq!(sizes.recv().unwrap(), 3);
    // A crowd: the last three wait for one more.
    let last = ask(&batcher, &[8]);
    go.send(()).unwrap();
    assert_eq!(sizes.recv().unwrap(), 4);
    assert_eq!(first.blocking_recv().unwrap().unwrap(), [2.0]);
    for (answer, expected) in others.into_iter().zip([&[4.0f32, 6.0][..], &[8.0], &[10.0, 12.0], &[14.0]]) {
        assert_eq!(answer.blocking_recv().unwrap().unwrap(), expected);
    }
    assert_eq!(last.blocking_recv().unwrap().unwrap(), [16.0]);
}

#[test]
fn a_request_is_as_large_as_it_likes_and_a_queue_is_not() {
    let (batcher, go, sizes) = held(together(4, 2));
    let large = ask(&batcher, &[1; 9]);
    assert_eq!(sizes.recv().unwrap(), 9);
    let waiting = [ask(&batcher, &[1]), ask(&batcher, &[2])];
    let refused = batcher.submit(vec![vec![3]], 1).unwrap_err();
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    // Who goes away makes room, and is not computed.
    let [one, two] = waiting;
    drop(one);
    let three = ask(&batcher, &[3]);
    (0..2).for_each(|_| go.send(()).unwrap());
    assert_eq!(sizes.recv().unwrap(), 2);
    assert_eq!(large.blocking_recv().unwrap().unwrap(), [2.0; 9]);
    assert_eq!(two.blocking_recv().unwrap().unwrap(), [4.0]);
    assert_eq!(three.blocking_recv().unwrap().unwrap(), [6.0]);
}

#[test]
fn what_waits_at_the_end_is_computed() {
    let (batcher, go, sizes) = held(together(4, 16));
    let first = ask(&batcher, &[1]);
    sizes.recv().unwrap();
    let second = [ask(&batcher, &[2]), ask(&batcher, &[3])];
    let third: Vec<_> = (0..3).map(|i| ask(&batcher, &[i; 2])).collect();
    drop(batcher);
    // The first, two batches of four samples, and no more: a thread that has ended takes no message.
    (0..3).for_each(|_| go.send(()).unwrap());
    assert_eq!([4, 4], [(); 2].map(|()| sizes.recv().unwrap()));
    assert_eq!(first.blocking_recv().unwrap().unwrap(), [2.0]);
    for answer in second.into_iter().chain(third) {
        assert!(answer.blocking_recv().unwrap().is_ok());
    }
}

#[test]
fn a_fault_is_the_answer_to_the_requests_of_its_batch() {
    let calls = AtomicUsize::new(0);
    let compute = move |_: &[&[u8]], _: &mut [f32]| match calls.fetch_add(1, Ordering::Relaxed) {
        0 => panic!("a bug"),
        1 => anyhow::bail!("no such device"),
        _ => Ok(()),
    };
    let batcher = Batcher::start(together(1, 16), Arc::new(compute), Arc::default()).unwrap();
    let answer = || ask(&batcher, &[1]).blocking_recv().unwrap();
    assert!(answer().unwrap_err().contains("a fault of the program"));
    assert!(answer().unwrap_err().contains("no such device"));
    assert!(answer().is_ok());
}
