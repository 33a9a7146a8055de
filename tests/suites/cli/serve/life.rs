//! How a server begins, is changed while it runs, and ends.

use super::{Reply, Server, drawing, request, trained};
use serde_json::Value;
use std::io::{Read, Write};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[test]
fn a_port_is_for_one() {
    let place = trained();
    let server = Server::start(&place, "r");
    let port = server.address.port();
    let message = place.fails(&format!("serve r --port {port}"), 1);
    assert!(
        message.contains(&format!("cannot listen on 127.0.0.1, port {port}"))
            && message.contains("help: another program"),
        "{message}"
    );
    assert!(server.address.ip().is_loopback());
    assert_eq!(server.get("/v2/health/ready").status, 200, "the first one goes on");
    assert_eq!(server.stop(), Some(0));
    let message = place.fails("serve r --port 0 --host 203.0.113.7", 1);
    assert!(message.contains("help: --host names an address of this machine"), "{message}");
}

#[test]
fn errors_of_models_come_before_anything_is_served() {
    let place = trained();
    place.write("broken.safetensors", &std::fs::read(place.path("r/best.safetensors")).unwrap()[..5000]);
    for (args, code, part) in [
        ("serve", 2, "MODEL"),
        ("serve nowhere", 1, "nowhere"),
        ("serve c.toml --port 0", 2, "names no weights"),
        ("serve r a=broken.safetensors --port 0", 1, "broken.safetensors"),
        ("serve r r/last.safetensors", 2, "both called `r`"),
        ("serve a/b=r --port 0", 2, "`a/b` cannot be the name of a model"),
        ("serve =r --port 0", 2, "`` cannot be the name of a model"),
        ("serve ü=r --port 0", 2, "help: a name, as in NAME=r, is made of letters of ASCII"),
        ("serve a/b=nowhere --port 0", 1, "a/b=nowhere"),
        ("serve r --queue 0", 2, "--queue"),
        ("serve r --max-body 0", 2, "--max-body"),
    ] {
        let message = place.fails(args, code);
        assert!(message.contains(part), "{args}: {message}");
    }
}

#[test]
fn it_prints_its_address_when_it_listens() {
    let place = trained();
    let mut command = place.command("serve r two=r/last.safetensors --port 0 --json --log off");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
    let report: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(report["models"], serde_json::json!(["r", "two"]));
    assert!(report["address"].as_str().unwrap().starts_with("http://127.0.0.1:"));
    // SAFETY: `kill` takes plain numbers; the process is our child and not waited for yet, so the number is its own.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn its_output_need_not_be_read() {
    let place = trained();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = place.command(&format!("serve r --port {port}"));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let full = std::fs::File::options().write(true).open("/dev/full");
    let stderr = full.map_or_else(|_| Stdio::null(), Stdio::from);
    let child = command.stdout(writer).stderr(stderr).spawn().unwrap();
    let server = Server { child, address: ([127, 0, 0, 1], port).into(), log: place.path("none") };
    let begun = std::time::Instant::now();
    while std::net::TcpStream::connect(server.address).is_err() {
        assert!(begun.elapsed() < super::PATIENCE, "it does not listen");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(server.image("/predict", &drawing(0).0).status, 200);
    assert_eq!(server.stop(), Some(0));
}

/// What a server that is killed leaves behind hinders no other: its port is free, and the files of the run are as they were.
#[test]
fn a_server_that_is_killed_under_load_leaves_nothing_behind() {
    let place = trained();
    let files = |place: &super::Place| {
        let mut names: Vec<_> = std::fs::read_dir(place.path("r")).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        (names, std::fs::read(place.path("r/best.safetensors")).unwrap())
    };
    let before = files(&place);
    let mut server = Server::start(&place, "r");
    let (address, image) = (server.address, drawing(0).0);
    let body = server.image("/predict", &image).body;
    let bytes = request("POST", "/predict", "Content-Type: image/png\r\n", &image);
    // Some have asked, and wait.
    let mut open: Vec<_> = (0..8).map(|_| server.connect()).collect();
    open.iter_mut().for_each(|stream| stream.write_all(&bytes).unwrap());
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    assert_eq!(files(&place), before);
    let again = Server::start_at(&place, "r", address.port());
    assert_eq!(again.image("/predict", &image).body, body);
    assert_eq!(again.stop(), Some(0));
}

/// Asks again and again from several threads, each request by a connection of its own, until `done`; how many were answered, and how many were not let in.
fn under_load(server: &Server, done: &AtomicBool, expected: &[&[u8]]) -> (usize, usize) {
    let (answered, sent_away) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (answered, sent_away) = (&answered, &sent_away);
            scope.spawn(move || {
                let bytes = request("POST", "/predict?top=10", "Content-Type: image/png\r\n", &drawing(thread).0);
                while !done.load(Ordering::Relaxed) {
                    // The server no longer listens.
                    let Ok(mut stream) = std::net::TcpStream::connect(server.address) else { break };
                    stream.set_read_timeout(Some(super::PATIENCE)).unwrap();
                    let mut answer = Vec::new();
                    if stream.write_all(&bytes).is_err()
                        || stream.read_to_end(&mut answer).is_err()
                        || answer.is_empty()
                    {
                        sent_away.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    // What has begun is whole.
                    let answer = Reply::of(&answer);
                    let length: usize = answer.header("content-length").unwrap().parse().unwrap();
                    assert_eq!(length, answer.body.len());
                    match answer.status {
                        200 => {
                            assert!(expected.contains(&&answer.body[..]), "{answer:?}");
                            answered.fetch_add(1, Ordering::Relaxed);
                        }
                        503 => {
                            assert_eq!(answer.header("retry-after"), Some("1"));
                            sent_away.fetch_add(1, Ordering::Relaxed);
                        }
                        _ => panic!("{answer:?}"),
                    }
                }
            });
        }
    });
    (answered.into_inner(), sent_away.into_inner())
}

fn expected(server: &Server) -> Vec<Vec<u8>> {
    (0..4).map(|i| server.image("/predict?top=10", &drawing(i).0).body).collect()
}

#[test]
fn it_stops_when_all_is_answered() {
    let place = trained();
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut server = Server::start(&place, "r");
        let all = expected(&server);
        let all: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
        // A connection that says nothing, and one in the middle of its body.
        let mut idle = server.connect();
        let mut slow = server.connect();
        let whole = request("POST", "/predict?top=10", "Content-Type: image/png\r\n", &drawing(0).0);
        slow.write_all(&whole[..whole.len() - 9]).unwrap();
        server.until("its body is received", || server.metric("runner_request_memory_bytes") > 0.0);
        let done = AtomicBool::new(false);
        let (answered, _) = std::thread::scope(|scope| {
            scope.spawn(|| {
                server.until("some are answered", || server.metric("runner_batch_requests_count{model=\"r\"}") > 40.0);
                server.signal(signal);
                server.until("it says so", || server.log().contains("stopping: requests that are under way"));
                // What was under way is answered.
                slow.write_all(&whole[whole.len() - 9..]).unwrap();
                let mut answer = Vec::new();
                slow.read_to_end(&mut answer).unwrap();
                assert_eq!(Reply::of(&answer).body, all[0]);
                done.store(true, Ordering::Relaxed);
            });
            under_load(&server, &done, &all)
        });
        assert!(answered > 0);
        let mut nothing = Vec::new();
        assert!(idle.read_to_end(&mut nothing).is_err() || nothing.is_empty());
        assert_eq!(server.child.wait().unwrap().code(), Some(0), "{}", server.log());
        assert!(server.log().contains("stopped: all requests are answered"));
    }
}

#[test]
fn an_end_is_not_put_off_for_ever() {
    let place = trained();
    for (args, twice) in
        [("r --drain-timeout 0", false), ("r --drain-timeout 1", false), ("r --drain-timeout 3600", true)]
    {
        let mut server = Server::start(&place, args);
        let mut slow = server.connect();
        slow.write_all(
            b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\nContent-Length: 9\r\n\r\nab",
        )
        .unwrap();
        server.until("it is there", || server.metric("runner_request_memory_bytes") > 0.0);
        server.signal(libc::SIGTERM);
        if twice {
            server.until("it says so", || server.log().contains("stopping"));
            server.signal(libc::SIGTERM);
        }
        assert_eq!(server.child.wait().unwrap().code(), Some(1), "{}", server.log());
        assert!(server.log().contains("stopped: requests were cut off"));
    }
}

#[test]
fn a_model_is_loaded_anew_while_requests_go_on() {
    let place = trained();
    place.ok("train c.toml --quiet --out other --set train.epochs=1 --set seed=4");
    let [first, other] = ["r", "other"].map(|run| std::fs::read(place.path(run).join("best.safetensors")).unwrap());
    place.write("m.safetensors", &first);
    let replace = |content: &[u8]| {
        place.write("new", content);
        std::fs::rename(place.path("new"), place.path("m.safetensors")).unwrap();
    };
    let server = Server::start(&place, "m.safetensors");
    let load = || server.ask("POST", "/v2/repository/models/m/load", "", b"");
    let before = expected(&server);

    // A broken one changes nothing and is reported, in whatever way it is broken.
    for broken in [&first[..first.len() / 2], b"", b"nonsense"] {
        replace(broken);
        let refused = load();
        assert_eq!(refused.status, 500, "{refused:?}");
        assert!(refused.error().starts_with("the model was not loaded, and the one before answers: "), "{refused:?}");
        assert_eq!(expected(&server), before);
    }
    std::fs::remove_file(place.path("m.safetensors")).unwrap();
    assert_eq!(load().status, 500);
    server.signal(libc::SIGHUP);
    server.until("it says so", || server.metric("runner_model_loads_total{model=\"m\",result=\"failed\"}") == 5.0);
    assert_eq!(expected(&server), before);
    assert_eq!(server.get("/v2/health/ready").status, 200);

    replace(&other);
    assert_eq!(load().status, 200);
    let after = expected(&server);
    assert_ne!(after, before);
    // Back and forth under load: every request is answered, by the one or the other.
    let known: Vec<&[u8]> = before.iter().chain(&after).map(Vec::as_slice).collect();
    let done = AtomicBool::new(false);
    let (answered, sent_away) = std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0..10 {
                replace(if turn % 2 == 0 { &first } else { &other });
                let well = server.metric("runner_model_loads_total{model=\"m\",result=\"done\"}");
                if turn % 3 == 0 {
                    server.signal(libc::SIGHUP);
                    server.until("it is loaded", || {
                        server.metric("runner_model_loads_total{model=\"m\",result=\"done\"}") > well
                    });
                } else {
                    assert_eq!(load().status, 200);
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        under_load(&server, &done, &known)
    });
    assert!(answered > 0);
    assert_eq!(sent_away, 0);
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn requests_are_written_down() {
    let place = trained();
    let server = Server::start(&place, "r --log json");
    let bad = "/predict/\u{1b}[2J";
    server.raw(&request("POST", bad, "", b""));
    server.raw(&request("POST", "/predict/%1b%5b2J", "", b""));
    server.image("/predict/r?top=2", &drawing(0).0);
    server.until("they are there", || server.log().contains("/predict/r\""));
    let log = server.log();
    assert!(!log.contains('\u{1b}'), "{log:?}");
    let lines: Vec<Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect();
    let last = lines.iter().find(|line| line["path"] == "/predict/r").unwrap();
    assert_eq!(
        (&last["method"], &last["status"], &last["model"], &last["samples"]),
        (&"POST".into(), &200.into(), &"r".into(), &1.into())
    );
    assert!(last["milliseconds"].as_f64().unwrap() > 0.0 && last["time"].as_str().unwrap().ends_with('Z'));
    assert_eq!(server.stop(), Some(0));

    let server = Server::start(&place, "r --log off");
    let before = server.log();
    server.image("/predict", &drawing(0).0);
    assert_eq!(server.log(), before);
    drop(server);
    let server = Server::start(&place, "r");
    server.image("/predict", &drawing(0).0);
    server.until("it is there", || server.log().contains(" POST /predict 200 "));
    assert!(server.log().contains(" ms, 1 sample of r\n"));
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let place = trained();
    let server = Server::start(&place, "r");
    let page = server.get("/");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'") && policy.contains("connect-src 'self'"), "{policy}");
    let text = String::from_utf8(page.body).unwrap();
    assert!(text.contains("prefers-color-scheme: dark") && text.contains("name=\"viewport\""));
    for from_elsewhere in
        ["http://", "https://", "//cdn", "@import", "<script src", "<link rel=\"stylesheet\"", "innerHTML"]
    {
        assert!(!text.contains(from_elsewhere), "{from_elsewhere}");
    }
    assert_eq!(server.ask("HEAD", "/", "", b"").status, 200);
}

/// A client that has sent a part of a head, and sends no more, keeps the server no longer than one that has sent none.
#[test]
fn half_a_head_does_not_hold_the_end_up() {
    let place = trained();
    let server = Server::start(&place, "r");
    let mut stalled = server.connect();
    stalled.write_all(b"GET /models HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut some = [0; 1024];
    assert!(stalled.read(&mut some).unwrap() > 0);
    stalled.write_all(b"POST /predict HTTP/1.1\r\nHost: localh").unwrap();
    // What is sent later is heard later.
    assert_eq!(server.get("/v2/health/ready").status, 200);
    let log = server.log.clone();
    assert_eq!(server.stop(), Some(0));
    let said = std::fs::read_to_string(log).unwrap();
    assert!(said.contains("stopped: all requests are answered"), "{said}");
}

/// What `nohup` has the program ignore stays ignored, and a note says so.
#[test]
fn a_reload_that_is_ignored_is_named() {
    use std::os::unix::process::CommandExt;
    let place = trained();
    for (handler, named) in [(libc::SIG_DFL, false), (libc::SIG_IGN, true)] {
        let mut command = place.command("serve --port 0 --threads 1 r");
        // SAFETY: between fork and exec it makes a plain system call.
        unsafe {
            command.pre_exec(move || {
                libc::signal(libc::SIGHUP, handler);
                Ok(())
            });
        }
        let server = Server::of(&place, command);
        assert_eq!(server.log().contains("note: SIGHUP loads no models anew"), named, "{}", server.log());
    }
}
