module box

go 1.19
