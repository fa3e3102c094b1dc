module trees

go 1.18
