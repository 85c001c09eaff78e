package main

func main() { println(answer()) }

func answer() int { return 42 }
