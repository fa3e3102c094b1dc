module front

go 1.19
