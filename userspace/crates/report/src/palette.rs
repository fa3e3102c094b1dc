//! One colour for each category, wherever it is shown.
//!
//! Categories of one family have one hue, which differs from those of other families for the colour-blind, too
//! (tested below with the three simulated); within a family they differ in lightness.

use comfy_table::Color;

use rpcprobe_model::Category;

/// Categories that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    User,
    Kernel,
    /// Runnable, or running nothing of one's own.
    Cpu,
    Storage,
    Queue,
    Wire,
    Waiting,
    Unattributed,
}

/// The family of a category, and its colour: red, green, blue.
pub fn shade(category: Category) -> (Family, u32) {
    use Category::*;
    match category {
        User => (Family::User, 0x0009_9e73),
        KernelPipe => (Family::Kernel, 0x001f_6fb4),
        KernelUnix => (Family::Kernel, 0x002b_83c9),
        KernelTcp => (Family::Kernel, 0x003f_8fd2),
        KernelUdp => (Family::Kernel, 0x005c_a1dc),
        KernelVfs => (Family::Kernel, 0x0018_5a9d),
        KernelExec => (Family::Kernel, 0x0036_6bb0),
        KernelMm => (Family::Kernel, 0x004a_7fc4),
        KernelFutex => (Family::Kernel, 0x0064_93d2),
        KernelPoll => (Family::Kernel, 0x007d_a7de),
        KernelSched => (Family::Kernel, 0x0028_5c9c),
        KernelOther => (Family::Kernel, 0x0098_b9e4),
        Copy => (Family::Kernel, 0x0013_4f8c),
        Fault => (Family::Kernel, 0x00b1_cbed),
        RunqueueWakeup => (Family::Cpu, 0x00d5_5e00),
        RunqueuePreempted => (Family::Cpu, 0x00ee_8033),
        Interrupt => (Family::Cpu, 0x00b1_4e00),
        Steal => (Family::Cpu, 0x0099_4400),
        Lock => (Family::Storage, 0x00f0_c419),
        Journal => (Family::Storage, 0x00d9_a900),
        BlockIo => (Family::Storage, 0x00f5_d760),
        Writeback => (Family::Storage, 0x00bf_9500),
        QueueAccept => (Family::Queue, 0x00b0_4f86),
        QueueSocket => (Family::Queue, 0x00c2_659a),
        QueuePipe => (Family::Queue, 0x00cc_79a7),
        QueueApp => (Family::Queue, 0x00dc_9bc0),
        WireQdisc => (Family::Wire, 0x007a_2a52),
        WireLink => (Family::Wire, 0x008e_3a64),
        WireStack => (Family::Wire, 0x00a2_4c77),
        Sleep => (Family::Waiting, 0x0073_cfe0),
        IdlePeer => (Family::Waiting, 0x00a3_e0ea),
        Unattributed => (Family::Unattributed, 0x006e_6e6e),
    }
}

/// As style sheets and figures have it: `#d55e00`.
pub fn hex(category: Category) -> String {
    format!("#{:06x}", shade(category).1)
}

/// On a terminal: one colour a family.
pub fn color_of(category: Category) -> Color {
    match shade(category).0 {
        Family::User => Color::Green,
        Family::Kernel => Color::Blue,
        Family::Cpu => Color::Red,
        Family::Storage => Color::Yellow,
        Family::Queue | Family::Wire => Color::Magenta,
        Family::Unattributed => Color::DarkGrey,
        Family::Waiting => Color::Cyan,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    type Rgb = [f64; 3];

    fn linear(rgb: u32) -> Rgb {
        [16, 8, 0].map(|shift| {
            let part = f64::from(rgb >> shift & 0xff) / 255.0;
            if part <= 0.04045 {
                part / 12.92
            } else {
                ((part + 0.055) / 1.055).powf(2.4)
            }
        })
    }

    fn times(matrix: [Rgb; 3], rgb: Rgb) -> Rgb {
        matrix.map(|row| row.iter().zip(rgb).map(|(m, c)| m * c).sum())
    }

    /// CIE 1976 L*a*b*, of light as of noon (D65).
    fn lab(rgb: Rgb) -> Rgb {
        let xyz = times(
            [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]],
            rgb,
        );
        let f = |of: f64| if of > 0.008_856 { of.cbrt() } else { 7.787 * of + 16.0 / 116.0 };
        let (x, y, z) = (f(xyz[0] / 0.9505), f(xyz[1]), f(xyz[2] / 1.089));
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    /// Machado, Oliveira and Fernandes 2009, severity 1: protanopia, deuteranopia, tritanopia.
    const BLIND: [[Rgb; 3]; 3] = [
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ],
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ],
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ],
    ];

    #[test]
    fn each_category_has_its_own() {
        let all: HashSet<u32> = Category::ALL.iter().map(|of| shade(*of).1).collect();
        assert_eq!(all.len(), Category::ALL.len());
    }

    /// Two colours differ for the eye from about 2.3 on; side by side in a figure, 10 is told apart at a glance.
    #[test]
    fn families_differ_for_the_colour_blind() {
        let seen = |category: Category| {
            let rgb = linear(shade(category).1);
            let blind = BLIND.map(|matrix| lab(times(matrix, rgb).map(|c| c.clamp(0.0, 1.0))));
            [lab(rgb), blind[0], blind[1], blind[2]]
        };
        // The first of each family: those that fill most of real captures.
        let first = [
            Category::User,
            Category::KernelPipe,
            Category::RunqueueWakeup,
            Category::Lock,
            Category::QueuePipe,
            Category::WireQdisc,
            Category::IdlePeer,
            Category::Unattributed,
        ];
        for (i, a) in first.iter().enumerate() {
            for b in &first[..i] {
                for (a_seen, b_seen) in seen(*a).iter().zip(seen(*b)) {
                    let squares = a_seen.iter().zip(b_seen).map(|(a, b)| (a - b).powi(2));
                    let apart = squares.sum::<f64>().sqrt();
                    assert!(apart > 10.0, "{a} {b}: {apart:.1}");
                }
            }
        }
    }
}
