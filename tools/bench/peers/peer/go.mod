module github.com/lockstep-cd/lockstep/tools/bench/peers/peer

go 1.26
