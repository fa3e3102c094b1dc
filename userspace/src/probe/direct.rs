//! Direct hooks (`--direct-hooks`): functions of the kernel, hooked by fentry and fexit or by kprobe and kretprobe. A
//! trial shows which of both this kernel allows.

use std::path::Path;

use anyhow::{anyhow, bail, Context, Result};
use clap::ValueEnum;
use libbpf_rs::{Link, Object, OpenObject};

use super::hooks::{DirectSpec, Sort, DIRECT_HOOKS};
use super::kernel_types::KernelTypes;
use super::messages::{last_libbpf_message, load, VERDICT};
use super::opened::Opened;
use super::Config;
use crate::capture::manifest::Hook;

/// Exists on a kernel with kprobes (kernel/events/core.c).
const KPROBES: &str = "/sys/bus/event_source/devices/kprobe";

/// How a function is hooked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// fentry and fexit, through a trampoline
    Fentry,
    /// kprobe and kretprobe, through breakpoints or jumps, at a higher cost
    Kprobe,
}

/// Which functions are to be hooked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// All of these, or none; empty: all that can be hooked.
    pub sorts: Vec<Sort>,
    /// `None`: by fentry or, if that is not possible, by kprobe.
    pub by: Option<By>,
}

impl Asked {
    fn wants(&self, spec: &DirectSpec) -> bool {
        self.sorts.is_empty() || self.sorts.contains(&spec.sort)
    }
}

impl By {
    fn name(self) -> &'static str {
        match self {
            By::Fentry => "fentry",
            By::Kprobe => "kprobe",
        }
    }

    fn attached_as(self) -> &'static str {
        match self {
            By::Fentry => "fentry+fexit",
            By::Kprobe => "kprobe+kretprobe",
        }
    }

    /// The programs at a function's entry and return.
    fn programs(self, spec: &DirectSpec) -> [String; 2] {
        let [begin, end] = match self {
            By::Fentry => ["fentry", "fexit"],
            By::Kprobe => ["kprobe", "kretprobe"],
        };
        [begin, end].map(|prefix| format!("{prefix}_{}", spec.program))
    }
}

/// Whether a program of the BPF object belongs to a direct hook.
pub fn is_direct(program: &str) -> bool {
    let of = |spec| [By::Fentry, By::Kprobe].iter().flat_map(move |by: &By| by.programs(spec));
    DIRECT_HOOKS.iter().flat_map(of).any(|name| name == program)
}

/// The functions that are to be hooked, and how.
#[derive(Clone, Debug)]
pub struct Chosen {
    by: By,
    /// Each function's name on this kernel; `Err`: why it cannot be hooked.
    functions: Vec<(&'static DirectSpec, Result<&'static str, String>)>,
}

impl Chosen {
    /// The wanted functions, as far as this kernel has them.
    pub(super) fn present(
        by: By,
        types: &KernelTypes,
        wanted: impl Fn(&DirectSpec) -> bool,
    ) -> Chosen {
        let named = |spec: &'static DirectSpec| {
            let found = spec.functions.iter().find(|name| types.function(name).is_some());
            let absent = || {
                let names = spec.functions.join(" or ");
                format!("this kernel has no function {names}, nor has a module that is loaded")
            };
            (spec, found.copied().ok_or_else(absent))
        };
        Chosen { by, functions: DIRECT_HOOKS.iter().filter(|of| wanted(of)).map(named).collect() }
    }

    fn there(&self) -> impl Iterator<Item = (&'static DirectSpec, &'static str)> + use<'_> {
        self.functions.iter().filter_map(|(spec, name)| Some((*spec, *name.as_ref().ok()?)))
    }

    /// The programs that are to be loaded.
    pub fn programs(&self) -> Vec<String> {
        self.there().flat_map(|(spec, _)| self.by.programs(spec)).collect()
    }

    /// Sets the functions that the programs attach to, before they are loaded.
    pub fn aim(&self, open: &mut OpenObject) -> Result<()> {
        if self.by == By::Kprobe {
            return Ok(());
        }
        for (spec, function) in self.there() {
            for name in self.by.programs(spec) {
                let mut programs = open.progs_mut();
                let program = programs.find(|program| program.name() == name.as_str());
                let mut program =
                    program.with_context(|| format!("the BPF object has no program {name}"))?;
                program
                    .set_attach_target(0, Some(function.to_owned()))
                    .with_context(|| format!("{function} is no function that fentry knows"))?;
            }
        }
        Ok(())
    }

    fn attach_one(&self, object: &Object, spec: &DirectSpec, function: &str) -> Result<Vec<Link>> {
        let program = |name: &str| {
            let found = object.progs_mut().find(|program| program.name() == name);
            found.with_context(|| format!("the BPF object has no program {name}"))
        };
        let [begin, end] = self.by.programs(spec);
        let (begin, end) = (program(&begin)?, program(&end)?);
        let attached = match self.by {
            By::Fentry => [end.attach_trace(), begin.attach_trace()],
            By::Kprobe => [end.attach_kprobe(true, function), begin.attach_kprobe(false, function)],
        };
        let attached: Result<Vec<Link>, libbpf_rs::Error> = attached.into_iter().collect();
        attached.map_err(|error| anyhow!("{error:#}"))
    }

    /// Attaches all that can be attached. Returns the links, and the manifest's line for each function.
    pub fn attach(&self, object: &Object) -> (Vec<Link>, Vec<Hook>) {
        let mut links = Vec::new();
        let hook = |(spec, name): &(&'static DirectSpec, Result<&'static str, String>)| {
            let attached = match name {
                Ok(name) => {
                    self.attach_one(object, spec, name).map_err(|error| format!("{error:#}"))
                }
                Err(why) => Err(why.clone()),
            };
            let why_not = attached.map(|these| links.extend(these)).err();
            self.describe(spec, name.as_ref().copied().unwrap_or(spec.functions[0]), why_not)
        };
        let hooks = self.functions.iter().map(hook).collect();
        (links, hooks)
    }

    fn describe(&self, spec: &DirectSpec, name: &str, why_not: Option<String>) -> Hook {
        Hook {
            name: name.to_owned(),
            attached_as: why_not.is_none().then(|| self.by.attached_as().to_owned()),
            why_not,
            purpose: spec.purpose.to_owned(),
        }
    }

    /// Attaches each function's hook and detaches it again. Returns the results.
    fn tried(&self, config: &Config) -> Vec<Hook> {
        let has_means = match self.by {
            By::Kprobe if !Path::new(KPROBES).exists() => {
                Err(anyhow!("this kernel has no kprobes"))
            }
            _ => Ok(()),
        };
        let opened = has_means.and_then(|()| Opened::only(config, self));
        let attached = opened.and_then(|opened| {
            let object = load(opened).map_err(|error| {
                let verdict = last_libbpf_message();
                let why = if verdict.starts_with(VERDICT) {
                    format!(": {verdict}")
                } else {
                    String::new()
                };
                anyhow!("the kernel refuses these programs: {error}{why}")
            })?;
            Ok(self.attach(&object).1)
        });
        attached.unwrap_or_else(|error| {
            let why =
                |name: &Result<&str, String>| name.clone().err().unwrap_or(format!("{error:#}"));
            let hook = |(spec, name): &(&'static DirectSpec, Result<&'static str, String>)| {
                self.describe(
                    spec,
                    name.as_ref().copied().unwrap_or(spec.functions[0]),
                    Some(why(name)),
                )
            };
            self.functions.iter().map(hook).collect()
        })
    }
}

/// Tries each function's hook on this kernel. Returns the results.
///
/// # Errors
/// The kernel's type information cannot be read.
pub fn try_all(config: &Config, by: By) -> Result<Vec<Hook>> {
    let types = KernelTypes::read()?;
    Ok(Chosen::present(by, &types, |_| true).tried(config))
}

/// Chooses how to attach the requested hooks on this kernel.
///
/// # Errors
/// They can be attached neither by fentry nor by kprobe, as far as the caller allows both: the error says why.
pub fn choose(asked: &Asked, config: &Config, types: &KernelTypes) -> Result<Chosen> {
    let ways = match asked.by {
        Some(by) => vec![by],
        None => vec![By::Fentry, By::Kprobe],
    };
    let mut refusals = Vec::new();
    for by in ways {
        let chosen = Chosen::present(by, types, |spec| asked.wants(spec));
        let hooks = chosen.tried(config);
        let refused: Vec<_> = hooks.iter().filter(|hook| hook.attached_as.is_none()).collect();
        let works = match asked.sorts.is_empty() {
            true => refused.len() < hooks.len(),
            false => refused.is_empty(),
        };
        if works {
            return Ok(chosen);
        }
        if let Some(first) = refused.first() {
            let why = first.why_not.as_deref().unwrap_or("no reason given");
            refusals.push(format!("{} of {}: {why}", by.name(), first.name));
        }
    }
    bail!("--direct-hooks: this kernel does not allow them: {}", refusals.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_from_those_of_other_hooks() {
        assert!(is_direct("fexit_receive_copy") && is_direct("kretprobe_socket_lock"));
        assert!(!is_direct("on_sys_enter") && !is_direct("fentry_") && !is_direct("receive_copy"));
    }

    #[test]
    fn what_is_asked_for_is_what_is_wanted() {
        let wanted = |sorts: &[Sort]| {
            let asked = Asked { sorts: sorts.to_vec(), by: None };
            let of = DIRECT_HOOKS.iter().filter(|spec| asked.wants(spec));
            of.map(|spec| spec.program).collect::<Vec<_>>()
        };
        assert_eq!(wanted(&[Sort::Journal]), ["commit_wait", "handle_start"]);
        assert_eq!(wanted(&[]).len(), DIRECT_HOOKS.len());
    }
}
