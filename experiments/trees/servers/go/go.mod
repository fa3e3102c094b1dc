module trees

go 1.22
