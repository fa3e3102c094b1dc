//! `rpcprobe ab -- A... --- B...`

use std::ffi::OsStr;
use std::fs::File;
use std::io::{IsTerminal, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, Context, Result};
use indicatif::{ProgressBar, ProgressStyle};

use super::{complain, runs};
use crate::attribute::EVENTS;
use crate::capture::manifest::Manifest;
use crate::cli::{AbArgs, Keep, Scope};
use crate::compare::plan::{self, Pair, Plan, COMPARISON};
use crate::compare::{compare, Run};
use crate::interrupt::{self, Interrupted};
use crate::invoking_user::{OutputDir, Owner, Sharing};
use crate::probe::check_privilege;
use crate::report::{escape, format_ns, RequestFilter};

/// Default name of the directory.
const DEFAULT: &str = "rpcprobe.ab";
/// How often to check whether a run has ended, and whether to stop.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Maximum that is kept of a run's output, from its end.
const SAID_BYTES: usize = 16 << 10;

pub fn ab(args: AbArgs) -> Result<i32> {
    check_privilege()?;
    let (a, b) = super::two_sides(&args.commands)?;
    let input = Input::of(args.input.as_deref())?;
    let seed = args.seed.unwrap_or_else(|| fastrand::Rng::new().u64(..));
    let dir = directory(&args)?;
    let words =
        |side: &[&OsStr]| side.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut plan = Plan::new(words(&a), words(&b), seed);
    let runner = Runner { args: &args, dir: &dir, input };
    let mut random = fastrand::Rng::with_seed(seed);
    let mut progress = Progress::new(args.pairs, args.json || !std::io::stderr().is_terminal());
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    interrupt::catch();
    let mut ended = Ok(());
    for number in 1..=args.pairs {
        let mut pair = Pair {
            pair: number,
            a_first: random.bool(),
            a: format!("a.{number}"),
            b: format!("b.{number}"),
            left_out: None,
        };
        match runner.pair(&pair, &a, &b, &mut progress) {
            Ok((run_of_a, run_of_b)) => {
                of_a.push(run_of_a);
                of_b.push(run_of_b);
            }
            Err(error) if error.is::<Failed>() => {
                progress.say(&format!("pair {number} is left out: {error:#}"));
                pair.left_out = Some(format!("{error:#}"));
            }
            Err(error) => {
                runner.discard(&pair);
                ended = Err(error);
                break;
            }
        }
        plan.pairs.push(pair);
        plan.write(&dir)?;
    }
    progress.finish();
    let stopped = interrupt::check().err();
    interrupt::answered();
    interrupt::release();
    ended.or_else(|error| if error.is::<Interrupted>() { Ok(()) } else { Err(error) })?;
    let shown = dir.path().display().to_string();
    if of_a.is_empty() {
        let left_out = plan::left_out(&plan.pairs).map_or(String::new(), |why| format!("; {why}"));
        complain(&format_args!("no pair of runs is whole{left_out}"));
        return Ok(stopped.map_or(1, Interrupted::exit_code));
    }
    let basis = plan::basis(of_a.len());
    let mut comparison = compare(plan.a.join(" "), &of_a, plan.b.join(" "), &of_b, basis)
        .with_context(|| format!("the captures are in {shown}"))?;
    let missing = args.pairs as usize - of_a.len();
    if missing > 0 {
        let why = match stopped {
            Some(_) => "the rest was not run".to_owned(),
            None => plan::left_out(&plan.pairs).unwrap_or_default(),
        };
        comparison
            .warnings
            .insert(0, format!("{} of {} pairs are whole; {why}", of_a.len(), args.pairs));
    }
    plan::write_json(&dir, COMPARISON, &comparison)?;
    super::print_comparison(&comparison, args.all, args.json)?;
    if args.keep != Keep::Nothing {
        complain(&format_args!(
            "the captures are in {shown}; `rpcprobe diff {shown}` compares them again"
        ));
    }
    Ok(match stopped {
        Some(interrupted) => interrupted.exit_code(),
        None => i32::from(missing > 0),
    })
}

fn directory(args: &AbArgs) -> Result<OutputDir> {
    let owner = Owner::invoking();
    let sharing = if args.share { Sharing::Shared } else { Sharing::Private };
    match &args.output {
        Some(path) if std::fs::symlink_metadata(path).is_ok() => {
            bail!("{} exists; -o takes a directory that does not", path.display())
        }
        Some(path) => OutputDir::create(owner, path, false, sharing),
        None => OutputDir::create_numbered(owner, DEFAULT, sharing),
    }
}

/// A run that is unusable while others may be usable: its pair is left out.
#[derive(Debug)]
struct Failed(String);

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}

/// Standard input of the commands. Each run reads it from the beginning.
enum Input {
    Nothing,
    File(PathBuf),
    /// Our own standard input, which is a regular file.
    Ours,
}

impl Input {
    fn of(file: Option<&Path>) -> Result<Input> {
        if let Some(path) = file {
            let input = Input::File(path.to_owned());
            input.open()?;
            return Ok(input);
        }
        let ours = std::io::stdin().as_fd().try_clone_to_owned().map(File::from);
        let is_file = ours.and_then(|file| file.metadata()).is_ok_and(|found| found.is_file());
        Ok(if is_file { Input::Ours } else { Input::Nothing })
    }

    fn open(&self) -> Result<Stdio> {
        let open = |path: &Path| Owner::invoking().run(|| File::open(path));
        match self {
            Input::Nothing => Ok(Stdio::null()),
            Input::File(path) => {
                let shown = path.display();
                let file = open(path)?.with_context(|| format!("cannot read --input {shown}"))?;
                Ok(file.into())
            }
            // Opened again, so that it has its own position in the file.
            Input::Ours => {
                let file =
                    File::open("/proc/self/fd/0").context("cannot read standard input again")?;
                Ok(file.into())
            }
        }
    }
}

struct Runner<'r> {
    args: &'r AbArgs,
    dir: &'r OutputDir,
    input: Input,
}

impl Runner<'_> {
    /// Runs both commands, in the pair's order.
    fn pair(
        &self,
        pair: &Pair,
        a: &[&OsStr],
        b: &[&OsStr],
        progress: &mut Progress,
    ) -> Result<(Run, Run)> {
        let (mut of_a, mut of_b) = (None, None);
        let order = if pair.a_first { [true, false] } else { [false, true] };
        let mut failed = None;
        for is_a in order {
            let (side, name, command) = if is_a { ("A", &pair.a, a) } else { ("B", &pair.b, b) };
            progress.begin(pair.pair, side);
            let begin = Instant::now();
            match self.run(side, pair.pair, name, command) {
                Ok(run) if is_a => of_a = Some(run),
                Ok(run) => of_b = Some(run),
                // The other run still takes its turn, so that both sides are treated alike.
                Err(error) if error.is::<Failed>() => failed = failed.or(Some(error)),
                Err(error) => return Err(error),
            }
            progress.end(pair.pair, side, begin.elapsed());
        }
        match (failed, of_a, of_b) {
            (Some(error), ..) => Err(error),
            (None, Some(a), Some(b)) => Ok((a, b)),
            _ => bail!("a run of pair {} is missing", pair.pair),
        }
    }

    /// Captures one run and sums it up.
    fn run(&self, side: &str, number: u32, name: &str, command: &[&OsStr]) -> Result<Run> {
        self.prepare()?;
        interrupt::check()?;
        let path = self.dir.path().join(name);
        let mut child = self.command(side, number, &path, command)?;
        let said = child.stderr.take().map(|pipe| thread::spawn(move || last_of(pipe)));
        let status = wait(&mut child)?;
        interrupt::check()?;
        let said = said.and_then(|reader| reader.join().ok()).unwrap_or_default();
        let first = OutputDir::open(Owner::invoking(), &path)
            .and_then(|dir| super::manifest(&dir).map(|manifest| (dir, manifest)));
        let (dir, manifest) = match first {
            Ok(opened) => opened,
            // The command cannot be run, or nothing can be captured. The next run would not be different.
            Err(_) => bail!("{}", no_capture(side, status, &said)),
        };
        let run = self.sum_up(side, &dir, manifest, &said);
        // The captures of a pair that is left out are kept or removed like all others.
        match self.args.keep {
            Keep::All => {}
            Keep::Tables => dir.remove_file(EVENTS)?,
            Keep::Nothing => dir.remove_whole()?,
        }
        run
    }

    fn sum_up(&self, side: &str, dir: &OutputDir, manifest: Manifest, said: &str) -> Result<Run> {
        let exit =
            manifest.command.wait_status.map(std::os::unix::process::ExitStatusExt::from_raw);
        let fails = exit.filter(|exit: &ExitStatus| !exit.success() && !self.args.ignore_failure);
        if let Some(exit) = fails {
            let why = last_line(said).map_or(String::new(), |line| format!(" ({line})"));
            return Err(Failed(format!("{side} ended with {}{why}", in_words(exit))).into());
        }
        let with_series = self.args.pairs == 1;
        let told = |error| {
            let said = last_line(said).unwrap_or_default();
            Failed(format!("{side}: {error:#}; {said}")).into()
        };
        runs::read(dir, manifest, &RequestFilter::default(), with_series).map_err(told)
    }

    fn prepare(&self) -> Result<()> {
        let Some(command) = &self.args.prepare else { return Ok(()) };
        let done = Command::new("sh").arg("-c").arg(command).stdin(Stdio::null()).output();
        let done = done.context("cannot run sh for --prepare")?;
        if !done.status.success() {
            interrupt::check()?;
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            let why = last_line(&said).map_or(String::new(), |line| format!(": {line}"));
            bail!("--prepare ended with {}{why}", in_words(done.status));
        }
        Ok(())
    }

    /// Starts a separate rpcprobe process for each run, so that the state left by a run cannot affect the next one.
    fn command(&self, side: &str, number: u32, path: &Path, command: &[&OsStr]) -> Result<Child> {
        let args = self.args;
        // Started by its path, so that its threads have the program's name in the captures.
        let program = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
        let mut run = Command::new(program);
        run.args(["run", "-q", "-o"]).arg(path);
        run.args(["--label", &format!("ab={side}"), "--label", &format!("pair={number}")]);
        for (key, value) in &args.label {
            run.arg("--label").arg(format!("{key}={value}"));
        }
        for rule in &args.wanted.request {
            run.arg("--request").arg(rule.to_string());
        }
        if args.scope == Scope::Target {
            run.args(["--scope", "target"]);
        }
        if args.share {
            run.arg("--share");
        }
        if let Some(user) = &args.user {
            run.arg("-u").arg(user);
        }
        run.arg("--").args(command);
        run.stdin(self.input.open()?);
        if !args.show_output {
            run.stdout(Stdio::null()).stderr(Stdio::piped());
        }
        run.spawn().context("cannot start another rpcprobe")
    }

    /// Removes what an incomplete pair left behind.
    fn discard(&self, pair: &Pair) {
        for name in [&pair.a, &pair.b] {
            let dir = OutputDir::open(Owner::invoking(), self.dir.path().join(name));
            if let Err(error) = dir.and_then(OutputDir::remove_whole) {
                // Usually the directory does not exist.
                let _ = error;
            }
        }
    }
}

/// Waits for the end of a run. A signal to us that the run did not also receive is passed on to it.
fn wait(child: &mut Child) -> Result<ExitStatus> {
    let mut told = false;
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for a run")? {
            return Ok(status);
        }
        if let (Err(Interrupted { signal }), false) = (interrupt::check(), told) {
            told = true;
            // Ctrl-C already goes to all processes in the foreground.
            if signal != libc::SIGINT || !std::io::stdin().is_terminal() {
                // SAFETY: takes integers only. The child has not been waited for, so the number is still its own.
                unsafe { libc::kill(child.id() as i32, signal) };
            }
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Reads everything and keeps the end.
fn last_of(mut pipe: impl Read) -> String {
    let (mut kept, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = pipe.read(&mut buffer) {
        kept.extend_from_slice(&buffer[..count]);
        if kept.len() > 2 * SAID_BYTES {
            kept.drain(..kept.len() - SAID_BYTES);
        }
    }
    String::from_utf8_lossy(&kept).into_owned()
}

fn last_line(said: &str) -> Option<String> {
    said.lines().map(str::trim).rfind(|line| !line.is_empty()).map(escape)
}

fn no_capture(side: &str, status: ExitStatus, said: &str) -> anyhow::Error {
    let why = last_line(said).unwrap_or_else(|| format!("it ended with {}", in_words(status)));
    let why = why.strip_prefix("rpcprobe: ").unwrap_or(&why);
    anyhow!("the run of {side} gave no capture: {why}")
}

fn in_words(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no status".to_owned(),
    }
}

/// Shows progress: a line that is replaced on a terminal, otherwise a line for each pair.
struct Progress {
    bar: Option<ProgressBar>,
    pairs: u32,
    line: String,
}

impl Progress {
    fn new(pairs: u32, plain: bool) -> Progress {
        let bar = (!plain).then(|| {
            let style =
                ProgressStyle::with_template("{msg}  [{bar:20}] {pos}/{len} runs, {eta} left");
            let bar = ProgressBar::new(u64::from(pairs) * 2);
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Progress { bar, pairs, line: String::new() }
    }

    fn begin(&mut self, pair: u32, side: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("pair {pair} of {}: {side}", self.pairs));
            bar.tick();
        }
    }

    fn end(&mut self, pair: u32, side: &str, took: Duration) {
        let took = format!("{side} {}", format_ns(took.as_nanos()));
        match (&self.bar, self.line.is_empty()) {
            (Some(bar), _) => bar.inc(1),
            (None, true) => self.line = format!("pair {pair} of {}: {took}", self.pairs),
            (None, false) => {
                complain(&format_args!("{}, {took}", self.line));
                self.line.clear();
            }
        }
    }

    fn say(&mut self, what: &str) {
        self.line.clear();
        match &self.bar {
            Some(bar) => bar.suspend(|| complain(&what)),
            None => complain(&what),
        }
    }

    fn finish(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
