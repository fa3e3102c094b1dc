//! Waits for block requests, in their parts.

use crate::classify::off_cpu::Part;
use crate::event::Block;
use rpcprobe_model::Category;

/// The wait for a block request in its parts.
pub(super) fn block_parts(
    category: Category,
    block: &Block,
    name: &str,
    from_ns: u64,
    to_ns: u64,
) -> Vec<Part> {
    let borders = [
        (block.queued_ns, "before it was queued"),
        (block.issued_ns, "queue"),
        (block.done_ns, "service"),
        (u64::MAX, "completion"),
    ];
    let mut parts = Vec::new();
    let mut at_ns = from_ns;
    for (border_ns, cause) in borders {
        let end_ns = border_ns.clamp(at_ns, to_ns);
        if at_ns < end_ns {
            parts.push(Part {
                from_ns: at_ns,
                to_ns: end_ns,
                category,
                is_inferred: false,
                detail: format!("{block}, in {name}"),
                cause: Some(cause.into()),
                by: None,
            });
        }
        at_ns = end_ns;
    }
    parts
}
