from flowctl.cli.main import main

main()
