//! One colour for each category, used everywhere it is shown.
//!
//! Categories of one family have related hues. Any two categories of different families are distinguishable, also for
//! the colour-blind, and so are neighbours in the stacked bars (tested below with simulations of three kinds of colour
//! blindness). Within a family, mostly the lightness differs.

use comfy_table::Color;

use rpcprobe_model::Category;

/// Families of similar categories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    User,
    Kernel,
    /// Runnable, or on a CPU without running the program's own code.
    Cpu,
    Storage,
    Queue,
    Wire,
    Waiting,
    Unattributed,
}

/// Returns the family of a category and its colour: red, green, blue.
pub fn shade(category: Category) -> (Family, u32) {
    use Category::*;
    match category {
        User => (Family::User, 0x0009_9e73),
        KernelPipe => (Family::Kernel, 0x001f_6fb4),
        KernelUnix => (Family::Kernel, 0x0005_3f70),
        KernelTcp => (Family::Kernel, 0x0099_a9d1),
        KernelUdp => (Family::Kernel, 0x0046_5abc),
        KernelVfs => (Family::Kernel, 0x0068_69a0),
        KernelExec => (Family::Kernel, 0x0061_93e6),
        KernelMm => (Family::Kernel, 0x008b_7fc4),
        KernelFutex => (Family::Kernel, 0x0029_328f),
        KernelPoll => (Family::Kernel, 0x0058_6d8d),
        KernelSched => (Family::Kernel, 0x0056_7fe3),
        KernelOther => (Family::Kernel, 0x0040_4c93),
        Copy => (Family::Kernel, 0x005a_b2f2),
        Fault => (Family::Kernel, 0x0073_7ccf),
        RunqueueWakeup => (Family::Cpu, 0x00d5_5e00),
        RunqueuePreempted => (Family::Cpu, 0x008c_1308),
        Interrupt => (Family::Cpu, 0x00a3_4618),
        Steal => (Family::Cpu, 0x00c2_7032),
        Lock => (Family::Storage, 0x00f0_c419),
        Journal => (Family::Storage, 0x00f6_d682),
        BlockIo => (Family::Storage, 0x00ca_a71e),
        Writeback => (Family::Storage, 0x00cf_bf67),
        QueueAccept => (Family::Queue, 0x00ae_738b),
        QueueSocket => (Family::Queue, 0x00fc_b1d2),
        QueuePipe => (Family::Queue, 0x00cc_79a7),
        QueueApp => (Family::Queue, 0x00d4_a1b5),
        WireQdisc => (Family::Wire, 0x007a_2a52),
        WireLink => (Family::Wire, 0x00aa_2647),
        WireStack => (Family::Wire, 0x0050_2933),
        Sleep => (Family::Waiting, 0x0034_dcfd),
        IdlePeer => (Family::Waiting, 0x00a3_e0ea),
        Unattributed => (Family::Unattributed, 0x006e_6e6e),
    }
}

/// Returns the colour as style sheets and figures write it: `#d55e00`.
pub fn hex(category: Category) -> String {
    format!("#{:06x}", shade(category).1)
}

/// Returns the colour on a terminal: one colour per family.
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

    /// Converts to CIE 1976 L*a*b*, for daylight (D65).
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

    /// Returns how a colour looks with normal vision, and with each kind of colour blindness.
    fn seen(category: Category) -> [Rgb; 4] {
        let rgb = linear(shade(category).1);
        let blind = BLIND.map(|matrix| lab(times(matrix, rgb).map(|c| c.clamp(0.0, 1.0))));
        [lab(rgb), blind[0], blind[1], blind[2]]
    }

    /// Returns the CIE 1976 distance, as seen by those who see least of it.
    fn apart(a: Category, b: Category) -> f64 {
        let distance = |(a, b): (&Rgb, &Rgb)| {
            a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
        };
        seen(a).iter().zip(&seen(b)).map(distance).fold(f64::INFINITY, f64::min)
    }

    // The eye distinguishes two colours from a distance of about 2.3 on; side by side in a figure, a distance of 10 is
    // visible at a glance.

    #[test]
    fn families_differ_for_the_colour_blind() {
        for (i, a) in Category::ALL.iter().enumerate() {
            for b in &Category::ALL[..i] {
                let least = if shade(*a).0 == shade(*b).0 { 6.0 } else { 10.0 };
                assert!(apart(*a, *b) > least, "{a} {b}: {:.1}", apart(*a, *b));
            }
        }
    }

    /// The order in which bars are stacked.
    #[test]
    fn neighbours_in_bars_differ_for_the_colour_blind() {
        for pair in Category::ALL.windows(2) {
            let apart = apart(pair[0], pair[1]);
            assert!(apart > 10.0, "{} {}: {apart:.1}", pair[0], pair[1]);
        }
    }
}
