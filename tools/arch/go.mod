module github.com/lockstep-cd/lockstep/tools/arch

go 1.26.0
