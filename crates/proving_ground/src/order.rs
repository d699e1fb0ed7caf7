//! Order of a self-test: every case once in each repetition, shuffled, so that changes on the
//! machine affect all cases alike. Pure: the seed decides.

/// Returns every item `repetitions` times, each with the number of its repetition from 1 on.
pub fn order<T: Copy>(items: &[T], repetitions: u32, seed: u64) -> Vec<(T, u32)> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut order = Vec::new();
    for repetition in 1..=repetitions {
        let mut block: Vec<(T, u32)> = items.iter().map(|&item| (item, repetition)).collect();
        random.shuffle(&mut block);
        order.extend(block);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_repetition_has_every_case_once_in_another_order() {
        let items: Vec<u32> = (0..20).collect();
        let order = order(&items, 3, 7);
        assert_eq!(order, super::order(&items, 3, 7));
        assert_ne!(order, super::order(&items, 3, 8));
        for (at, block) in order.chunks(20).enumerate() {
            let mut order_items: Vec<u32> = block.iter().map(|(item, _)| *item).collect();
            assert!(block.iter().all(|(_, repetition)| *repetition == at as u32 + 1));
            assert_ne!(order_items, items);
            order_items.sort_unstable();
            assert_eq!(order_items, items);
        }
    }
}
