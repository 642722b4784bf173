//! elfutils' own server, and servers that mean harm. All on loopback.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::print_stderr, reason = "what cannot be tested here is said")]

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use uhr_debuginfod::{Debuginfod, Limits};
use uhr_model::BuildId;
use uhr_model::object::ElfFile;

/// A program and its debug file.
struct Built {
    folder: tempfile::TempDir,
    debug: PathBuf,
    id: BuildId,
}

fn run(tool: &str, arguments: &[&str]) {
    assert!(Command::new(tool).args(arguments).status().unwrap().success(), "{tool} {arguments:?}");
}

fn built(version: u32) -> Built {
    let folder = tempfile::tempdir().unwrap();
    let [source, program, debug] = ["a.c", "a", "a.debug"].map(|name| folder.path().join(name));
    fs::write(&source, format!("int main(void) {{ return {version}; }}")).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    run("gcc", &["-g", "-Wl,--build-id", &text(&source), "-o", &text(&program)]);
    run("objcopy", &["--only-keep-debug", &text(&program), &text(&debug)]);
    let id = ElfFile::parse(fs::read(&debug).unwrap().as_slice()).unwrap().build_id.unwrap();
    Built { folder, debug, id }
}

fn limits() -> Limits {
    Limits {
        connect: Duration::from_millis(500),
        answer: Duration::from_millis(700),
        whole: Duration::from_millis(1500),
        bytes: 4 << 20,
    }
}

/// What a server answers, and how often it was asked.
struct Planted {
    url: String,
    asked: Arc<AtomicU32>,
}

fn serve(answer: impl Fn(&mut TcpStream, &str) + Send + 'static) -> Planted {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    // It ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                request.push(byte[0]);
            }
            count.fetch_add(1, Ordering::SeqCst);
            answer(&mut stream, &String::from_utf8_lossy(&request));
        }
    });
    Planted { url, asked }
}

fn send(stream: &mut TcpStream, status: &str, body: &[u8]) {
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}

fn cached(cache: &Path, id: &BuildId) -> PathBuf {
    cache.join(id.to_string()).join("debuginfo")
}

#[test]
fn a_file_is_fetched_once_and_then_cached() {
    let built = built(1);
    let bytes = fs::read(&built.debug).unwrap();
    let wanted = format!("GET /buildid/{}/debuginfo HTTP/1.1\r\n", built.id);
    let server = serve(move |stream, request| {
        assert!(request.starts_with(&wanted), "{request}");
        send(stream, "200 OK", &bytes);
    });
    let cache = built.folder.path().join("cache");
    let servers = Debuginfod::new(&format!(" {}/  ", server.url), &cache, limits());
    let path = servers.debug_file(&built.id).unwrap();
    assert_eq!(path, cached(&cache, &built.id));
    assert_eq!(fs::read(&path).unwrap(), fs::read(&built.debug).unwrap());
    assert_eq!((servers.report().fetched, servers.report().failures), (1, vec![]));
    let again = Debuginfod::new(&server.url, &cache, limits());
    assert_eq!(again.debug_file(&built.id), Some(path.clone()));
    assert_eq!(server.asked.load(Ordering::SeqCst), 1);

    // What somebody else left in the cache is not believed.
    fs::write(&path, b"not it").unwrap();
    assert_eq!(again.debug_file(&built.id), Some(path));
    assert_eq!(server.asked.load(Ordering::SeqCst), 2);
}

#[test]
fn what_no_server_has_is_remembered() {
    let built = built(2);
    let server = serve(|stream, _| send(stream, "404 Not Found", b"nothing"));
    let cache = built.folder.path().join("cache");
    let ask = || Debuginfod::new(&server.url, &cache, limits()).debug_file(&built.id);
    assert_eq!((ask(), ask()), (None, None));
    assert_eq!(server.asked.load(Ordering::SeqCst), 1);
    let path = cached(&cache, &built.id);
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    // After a while it is asked again.
    let old = std::time::SystemTime::now() - Duration::from_secs(3600);
    fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
    assert_eq!(ask(), None);
    assert_eq!(server.asked.load(Ordering::SeqCst), 2);
}

/// Each in its way: nothing is kept, it takes a bounded time, and the server is not asked again.
#[test]
fn servers_that_mean_harm() {
    let right = built(3);
    let wrong = fs::read(built(4).debug).unwrap();
    let is = |name: &str| name.to_owned();
    let endless = |stream: &mut TcpStream, _: &str| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
        while stream.write_all(&[0; 1 << 16]).is_ok() {}
    };
    let slow = |stream: &mut TcpStream, _: &str| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
        while stream.write_all(b"\x7f").is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let silent = |_: &mut TcpStream, _: &str| std::thread::sleep(Duration::from_secs(4));
    let looping = |stream: &mut TcpStream, _: &str| {
        let _ = stream.write_all(
            b"HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        );
    };
    let bomb = |stream: &mut TcpStream, _: &str| {
        let packed =
            Command::new("sh").args(["-c", "head -c 50000000 /dev/zero | gzip -1"]).output().unwrap().stdout;
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", packed.len());
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&packed));
    };
    let dead = { TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap() };
    let harmful = [
        (is("another build"), serve(move |stream, _| send(stream, "200 OK", &wrong)).url),
        (is("no ELF"), serve(|stream, _| send(stream, "200 OK", b"<html>")).url),
        (
            is("cut"),
            serve(|stream, _| drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nEL"))).url,
        ),
        (is("endless"), serve(endless).url),
        (is("slow"), serve(slow).url),
        (is("silent"), serve(silent).url),
        (is("redirects"), serve(looping).url),
        (is("packed zeros"), serve(bomb).url),
        (is("error"), serve(|stream, _| send(stream, "500 Internal Server Error", b"")).url),
        (is("nonsense"), serve(|stream, _| drop(stream.write_all(b"SSH-2.0-x\r\n\r\n"))).url),
        (is("dead"), format!("http://{dead}")),
    ];
    for (name, url) in harmful {
        let cache = right.folder.path().join(&name);
        let servers = Debuginfod::new(&url, &cache, limits());
        let began = Instant::now();
        assert_eq!(servers.debug_file(&right.id), None, "{name}");
        assert!(began.elapsed() < Duration::from_secs(3), "{name}: {:?}", began.elapsed());
        let failures = servers.report().failures;
        assert!(matches!(&failures[..], [why] if why.contains("not asked again")), "{name}: {failures:?}");
        let began = Instant::now();
        assert_eq!(servers.debug_file(&right.id), None, "{name}");
        assert!(began.elapsed() < Duration::from_millis(100), "{name}");
        assert_eq!(servers.report().failures.len(), 1, "{name}");
        let left = fs::read_dir(&cache).map(|entries| entries.count()).unwrap_or(0);
        assert_eq!(left, 0, "{name}");
    }
    // A good server behind a bad one is asked.
    let bytes = fs::read(&right.debug).unwrap();
    let good = serve(move |stream, _| send(stream, "200 OK", &bytes)).url;
    let both = Debuginfod::new(
        &format!("http://{dead} ftp://x {good}"),
        &right.folder.path().join("both"),
        limits(),
    );
    assert!(both.debug_file(&right.id).is_some());
    assert_eq!(both.report().failures.len(), 2);
}

#[test]
fn where_the_cache_is() {
    let path = |set: &'static [(&'static str, &'static str)]| {
        Debuginfod::cache_path(|name| set.iter().find(|row| row.0 == name).map(|row| PathBuf::from(row.1)))
    };
    assert_eq!(path(&[("DEBUGINFOD_CACHE_PATH", "/own"), ("HOME", "/h")]), Some("/own".into()));
    assert_eq!(path(&[("XDG_CACHE_HOME", "/xdg"), ("HOME", "/h")]), Some("/xdg/debuginfod_client".into()));
    assert_eq!(path(&[("HOME", "/h")]), Some("/h/.cache/debuginfod_client".into()));
    assert_eq!(path(&[]), None);
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_server_of_elfutils() {
    let built = built(5);
    let folder = built.folder.path();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let Ok(help) = Command::new("debuginfod").arg("--help").output() else {
        eprintln!("SKIPPED the_server_of_elfutils: debuginfod is not installed");
        return;
    };
    let mut command = Command::new("debuginfod");
    command.arg("-d").arg(folder.join("database")).args(["-p", &port.to_string(), "-F"]).arg(folder);
    // Only newer ones can be told to keep to loopback.
    if String::from_utf8_lossy(&help.stdout).contains("--listen-address") {
        command.arg("--listen-address=127.0.0.1");
    }
    command.env_remove("DEBUGINFOD_URLS").stdout(Stdio::null()).stderr(Stdio::null());
    let _server = Ended(command.spawn().unwrap());
    let url = format!("http://127.0.0.1:{port}");
    // It has to find the file first; until then it is not there, or knows no such file.
    let began = Instant::now();
    let path = loop {
        let cache = folder.join(format!("cache-{}", began.elapsed().as_millis()));
        let servers = Debuginfod::new(&url, &cache, Limits::default());
        if let Some(path) = servers.debug_file(&built.id) {
            break path;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", servers.report());
        std::thread::sleep(Duration::from_millis(100));
    };
    assert!(path.ends_with(format!("{}/debuginfo", built.id)));
    let served = fs::read(path).unwrap();
    // It may serve the program, which has the debug information too.
    assert!([&built.debug, &folder.join("a")].iter().any(|file| fs::read(file).unwrap() == served));
}
