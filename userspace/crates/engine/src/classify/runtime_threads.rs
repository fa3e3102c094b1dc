//! Roles of language runtimes' threads, where their names show them.

/// Beginnings of thread names, and what such threads do. Names are cut to 15 letters (TASK_COMM_LEN). HotSpot names its
/// threads (also those of G1, the parallel collector, Shenandoah and ZGC), V8 those of its platform, libuv and tokio
/// those of their pools. Go's threads, also those of its collector, have the program's name; only goroutines that are
/// followed have known roles.
const ROLES: [(&str, &str); 20] = [
    ("Go GC", "collection"),
    ("GC Thread#", "collection"),
    ("G1 ", "collection"),
    ("ParGC Thread#", "collection"),
    ("Shenandoah GC", "collection"),
    ("ShenCt", "collection"),
    ("ZWorker", "collection"),
    ("ZDriver", "collection"),
    ("ZDirector", "collection"),
    ("VM Thread", "collection, or another stop of the virtual machine"),
    ("Reference Handl", "collection: references"),
    ("Finalizer", "collection: finalizers"),
    ("C1 CompilerThre", "compiler"),
    ("C2 CompilerThre", "compiler"),
    ("V8Worker", "collection or compiler"),
    ("V8 DefaultWorke", "collection or compiler"),
    ("DelayedTaskSche", "scheduler"),
    ("libuv-worker", "worker of the runtime"),
    ("tokio-runtime-w", "scheduler's worker"),
    ("tokio-rt-worker", "scheduler's worker"),
];

/// The name of a thread with its role, if the role is known: `GC Thread#1 (collection)`.
pub fn with_role(comm: &str) -> String {
    match ROLES.iter().find(|(begin, _)| comm.starts_with(begin)) {
        Some((_, role)) => format!("{comm} ({role})"),
        None => comm.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::with_role;

    #[test]
    fn names_tell_of_some_threads_only() {
        assert_eq!(with_role("GC Thread#1"), "GC Thread#1 (collection)");
        assert_eq!(with_role("G1 Conc#0"), "G1 Conc#0 (collection)");
        assert_eq!(with_role("tokio-runtime-w"), "tokio-runtime-w (scheduler's worker)");
        assert_eq!(with_role("server"), "server");
        assert_eq!(with_role("G1"), "G1");
    }
}
